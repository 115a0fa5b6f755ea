//! The fields of the key `rollout` that say when: windows, freezes, deferrals, delays and urgency.

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::error::ConfigError;
use super::rollout_fields::{exact_keys, parse_duration};
use super::section::Section;
use crate::util::calendar::{Freeze, Window, parse_day, parse_time, parse_zone};

const WINDOW_KEYS: [&str; 4] = ["days", "from", "to", "zone"];
const FREEZE_KEYS: [&str; 4] = ["from", "to", "zone", "why"];
const DEFERRAL_KEYS: [&str; 2] = ["namespaces", "max"];
const DELAY_KEYS: [&str; 2] = ["clusters", "by"];

/// How long tenants may put a revision off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deferral {
    /// Glob over the names of namespaces.
    pub namespaces: String,
    /// From the opening of their wave.
    pub max: SignedDuration,
}

/// How long a cluster waits for other clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delay {
    /// Glob over the names of clusters.
    pub clusters: String,
    /// From the arrival of a revision.
    pub by: SignedDuration,
}

/// One item of a list of maps.
struct Item<'a> {
    section: &'a Section<'a>,
    path: String,
    fields: Map<String, Value>,
}

impl<'a> Item<'a> {
    fn all(section: &'a Section, value: &Value, path: &str, keys: &[&str]) -> Result<Vec<Self>, ConfigError> {
        let items = section.list(value, path)?.iter().enumerate();
        let item = |(index, item): (usize, &Value)| {
            let path = format!("{path}[{index}]");
            Ok(Self { section, fields: exact_keys(section, item, &path, keys)?, path })
        };
        items.map(item).collect()
    }

    fn get(&self, key: &str) -> &Value {
        self.fields.get(key).unwrap_or(&Value::Null)
    }

    fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    /// The text of a field that must not be absent. `noun` names it, and `example` is one.
    fn required(&self, key: &str, noun: &str, example: &str) -> Result<String, ConfigError> {
        let text = self.section.text(self.get(key), &self.path(key))?;
        if text.trim().is_empty() {
            let remedy = format!("write {key}: {example}");
            return Err(self.section.error(&self.path, &format!("has no {noun}"), &remedy));
        }
        Ok(text.trim().to_owned())
    }

    fn zone(&self) -> Result<TimeZone, ConfigError> {
        let name = self.required("zone", "zone", "Europe/Berlin")?;
        parse_zone(&name).map_err(|problem| self.section.error(&self.path("zone"), &problem, "write its IANA name"))
    }

    fn time(&self, key: &str) -> Result<Time, ConfigError> {
        let text = self.required(key, &format!("time {key}"), "\"22:00\"")?;
        parse_time(&text).ok_or_else(|| {
            let message = format!("{text:?} is no time of day");
            self.section.error(&self.path(key), &message, "write hours and minutes in quotes, such as \"22:00\"")
        })
    }

    fn day(&self, key: &str) -> Result<Date, ConfigError> {
        let text = self.required(key, &format!("day {key}"), "2026-12-18")?;
        text.parse().map_err(|_| {
            let message = format!("{text:?} is no day");
            self.section.error(&self.path(key), &message, "write year, month and day, such as 2026-12-18")
        })
    }

    fn window(&self) -> Result<Window, ConfigError> {
        let days = match self.get("days") {
            Value::Null => [true; 7],
            value => self.days(value)?,
        };
        Ok(Window { days, from: self.time("from")?, to: self.time("to")?, zone: self.zone()? })
    }

    fn days(&self, value: &Value) -> Result<[bool; 7], ConfigError> {
        let path = self.path("days");
        let mut days = [false; 7];
        let names = self.section.list(value, &path)?;
        if names.is_empty() {
            return Err(self.section.error(&path, "is empty, so the window never opens", "leave it out for every day"));
        }
        for (index, name) in names.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let name = self.section.text(name, &path)?;
            let day = parse_day(&name).ok_or_else(|| {
                self.section.error(
                    &path,
                    &format!("{name:?} is no day of the week"),
                    "write mon, tue, wed, thu, fri, sat or sun",
                )
            })?;
            days[day] = true;
        }
        Ok(days)
    }

    fn freeze(&self) -> Result<Freeze, ConfigError> {
        let (from, to) = (self.day("from")?, self.day("to")?);
        if to < from {
            let message = format!("ends before it begins: {to} is before {from}");
            return Err(self.section.error(&self.path("to"), &message, "write the last frozen day"));
        }
        let why = self.section.text(self.get("why"), &self.path("why"))?;
        Ok(Freeze { from, to, zone: self.zone()?, why })
    }

    fn duration(&self, key: &str) -> Result<SignedDuration, ConfigError> {
        self.required(key, key, "24h")?;
        parse_duration(self.section, self.get(key), &self.path(key), SignedDuration::ZERO)
    }
}

pub(super) fn parse_windows(section: &Section, value: &Value, path: &str) -> Result<Vec<Window>, ConfigError> {
    Item::all(section, value, path, &WINDOW_KEYS)?.iter().map(Item::window).collect()
}

pub(super) fn parse_freezes(section: &Section, value: &Value) -> Result<Vec<Freeze>, ConfigError> {
    Item::all(section, value, "freezes", &FREEZE_KEYS)?.iter().map(Item::freeze).collect()
}

pub(super) fn parse_deferral(section: &Section, value: &Value) -> Result<Vec<Deferral>, ConfigError> {
    let deferral = |item: &Item| {
        Ok(Deferral { namespaces: item.required("namespaces", "namespaces", "\"*\"")?, max: item.duration("max")? })
    };
    Item::all(section, value, "deferral", &DEFERRAL_KEYS)?.iter().map(deferral).collect()
}

pub(super) fn parse_delay(section: &Section, value: &Value) -> Result<Vec<Delay>, ConfigError> {
    let delay = |item: &Item| {
        Ok(Delay { clusters: item.required("clusters", "clusters", "\"*-dev\"")?, by: item.duration("by")? })
    };
    Item::all(section, value, "delay", &DELAY_KEYS)?.iter().map(delay).collect()
}

pub(super) fn parse_urgent_until(section: &Section, value: &Value) -> Result<Option<Timestamp>, ConfigError> {
    let text = section.text(value, "urgentUntil")?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    text.trim().parse().map(Some).map_err(|_| {
        let message = format!("{text:?} is no time");
        section.error("urgentUntil", &message, "write a time with its zone, such as \"2026-08-22T06:00:00Z\"")
    })
}
