//! Times at which a rollout may replace nodes: windows that recur, and freezes.
//!
//! Times are compared in the civil time of a zone, so a window keeps its hours when the clocks change. A skipped hour
//! never occurs, and a repeated hour occurs twice.

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::similar::closest_match;

/// How far ahead the next opening is searched for.
const HORIZON_DAYS: i64 = 15;

/// Hours in which a rollout may replace nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    /// Whether it begins on each day, from Monday.
    pub days: [bool; 7],
    /// Time of day at which it begins, in `zone`.
    pub from: Time,
    /// When it ends; not later than `from` means on the next day.
    pub to: Time,
    /// Where these times are.
    pub zone: TimeZone,
}

/// Days on which a rollout replaces no nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Freeze {
    /// The first day, from midnight in `zone`.
    pub from: Date,
    /// The last day, which is frozen as well.
    pub to: Date,
    /// Where these days are.
    pub zone: TimeZone,
    /// Why, for display; may be empty.
    pub why: String,
}

/// Whether a rollout may replace nodes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WindowState {
    /// A window is open, and no freeze is in effect.
    Open,
    /// No window is open.
    Closed {
        /// When the next one opens; `None` when none does within two weeks.
        next: Option<Timestamp>,
    },
    /// A freeze forbids it.
    Frozen {
        /// Why, for display; may be empty.
        why: String,
        /// When the next window opens after it; `None` when none does within two weeks after the freezes.
        next: Option<Timestamp>,
    },
}

impl Window {
    /// Whether it is open for 24 hours because it ends at the time at which it begins. From midnight, a whole day is
    /// meant.
    pub(crate) fn has_equal_times(&self) -> bool {
        self.from == self.to && self.from != Time::midnight()
    }

    fn is_open(&self, at: Timestamp) -> bool {
        let local = at.to_zoned(self.zone.clone());
        let (day, time) = (index(local.weekday()), local.time());
        let (today, yesterday) = (self.days[day], self.days[(day + 6) % 7]);
        match self.from < self.to {
            true => today && time >= self.from && time < self.to,
            false => (today && time >= self.from) || (yesterday && time < self.to),
        }
    }

    /// The times at which it may begin on the day that is `days` after that of a time.
    fn starts(&self, after: Timestamp, days: i64) -> Vec<Timestamp> {
        let date = after.to_zoned(self.zone.clone()).date().checked_add(days.days());
        let Some(date) = date.ok().filter(|date| self.days[index(date.weekday())]) else { return vec![] };
        let local = self.zone.to_ambiguous_timestamp(date.to_datetime(self.from));
        let (earlier, later) = (local.earlier().ok(), local.later().ok());
        // Of a skipped hour, the rest of the window begins with the change of the clocks.
        let change = earlier.filter(|_| local.is_ambiguous());
        let change = change.and_then(|at| self.zone.following(at).next().map(|change| change.timestamp()));
        [earlier, later, change].into_iter().flatten().collect()
    }
}

impl Freeze {
    fn contains(&self, at: Timestamp) -> bool {
        let date = at.to_zoned(self.zone.clone()).date();
        self.from <= date && date <= self.to
    }

    fn end(&self) -> Option<Timestamp> {
        Some(self.to.tomorrow().ok()?.to_zoned(self.zone.clone()).ok()?.timestamp())
    }
}

/// Whether nodes may be replaced: one window of each list must be open, unless the list is empty, and there is no freeze.
pub(crate) fn window_state(windows: &[&[Window]], freezes: &[Freeze], now: Timestamp) -> WindowState {
    if is_open(windows, freezes, now) {
        return WindowState::Open;
    }
    let next = next_opening(windows, freezes, now);
    match freezes.iter().find(|freeze| freeze.contains(now)) {
        Some(freeze) => WindowState::Frozen { why: freeze.why.clone(), next },
        None => WindowState::Closed { next },
    }
}

fn next_opening(windows: &[&[Window]], freezes: &[Freeze], now: Timestamp) -> Option<Timestamp> {
    let mut bases: Vec<Timestamp> = freezes.iter().filter_map(Freeze::end).filter(|end| *end > now).collect();
    bases.push(now);
    bases.sort_unstable();
    bases.into_iter().find_map(|base| {
        if base > now && is_open(windows, freezes, base) {
            return Some(base);
        }
        let of_day = |day| windows.iter().flat_map(|list| list.iter()).flat_map(move |w| w.starts(base, day));
        let opens = |at: &Timestamp| *at > now && is_open(windows, freezes, *at);
        let first = (0..=HORIZON_DAYS).find(|day| of_day(*day).any(|at| opens(&at)))?;
        // A moment has up to three dates in the zones of the world, so the next days may have an earlier opening.
        (first..=first + 2).flat_map(of_day).filter(opens).min()
    })
}

/// Whether there is an opening of half an hour within two weeks.
pub(crate) fn opens_for_half_an_hour(windows: &[&[Window]], freezes: &[Freeze], now: Timestamp) -> bool {
    let step = SignedDuration::from_mins(15);
    let times = (0..14 * 24 * 4).filter_map(|steps| now.checked_add(step * steps).ok());
    let mut open = 0;
    times.into_iter().any(|at| {
        open = if is_open(windows, freezes, at) { open + 1 } else { 0 };
        open == 3
    })
}

fn is_open(windows: &[&[Window]], freezes: &[Freeze], at: Timestamp) -> bool {
    windows.iter().all(|list| list.is_empty() || list.iter().any(|window| window.is_open(at)))
        && !freezes.iter().any(|freeze| freeze.contains(at))
}

/// The zone with a name of the IANA database, which is part of the program.
///
/// # Errors
/// There is none; the message names it, and which one may be meant.
pub(crate) fn parse_zone(name: &str) -> Result<TimeZone, String> {
    let known = TimeZoneDatabase::bundled();
    known.get(name).map_err(|_| {
        let names: Vec<String> = known.available().map(|found| found.as_str().to_owned()).collect();
        let near = closest_match(name, names.iter().map(String::as_str));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        format!("{name:?} is not a time zone of the IANA database, such as Europe/Berlin or UTC{near}")
    })
}

/// A day of the week by its first three letters or its name, in any case.
pub(crate) fn parse_day(text: &str) -> Option<usize> {
    const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let text = text.trim().to_lowercase();
    DAYS.iter().position(|day| *day == text || day[..3] == text)
}

/// A time of day as `22:00`. `24:00` is midnight.
pub(crate) fn parse_time(text: &str) -> Option<Time> {
    let (hour, minute) = text.trim().split_once(':')?;
    let is_two_digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    let (hour, minute) = Some((hour, minute)).filter(|(hour, minute)| is_two_digits(hour) && is_two_digits(minute))?;
    match (hour.parse().ok()?, minute.parse().ok()?) {
        (24, 0) => Some(Time::midnight()),
        (hour, minute) => Time::new(hour, minute, 0, 0).ok(),
    }
}

/// A window as tenants write it: `sat-sun 02:00-06:00 America/Los_Angeles`. The days may be left out.
///
/// # Errors
/// It is none; the message names what is wrong.
pub(crate) fn parse_window(text: &str) -> Result<Window, String> {
    const FORM: &str = "write it like \"sat-sun 02:00-06:00 Europe/Berlin\"";
    let words: Vec<&str> = text.split_whitespace().collect();
    let (days, hours, zone) = match words.as_slice() {
        [hours, zone] => ("mon-sun", *hours, *zone),
        [days, hours, zone] => (*days, *hours, *zone),
        _ => return Err(format!("{text:?} is not a window; {FORM}")),
    };
    let mut found = [false; 7];
    for part in days.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Some(first), Some(last)) = (parse_day(first), parse_day(last)) else {
            return Err(format!("{part:?} names no days; {FORM}"));
        };
        (0..=(last + 7 - first) % 7).for_each(|after| found[(first + after) % 7] = true);
    }
    let times = hours.split_once('-').and_then(|(from, to)| Some((parse_time(from)?, parse_time(to)?)));
    let (from, to) = times.ok_or_else(|| format!("{hours:?} are not valid hours; {FORM}"))?;
    Ok(Window { days: found, from, to, zone: parse_zone(zone)? })
}

fn index(day: Weekday) -> usize {
    usize::try_from(day.to_monday_zero_offset()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn window(text: &str) -> Window {
        parse_window(text).expect(text)
    }

    fn next(text: &str, now: &str) -> Option<String> {
        match window_state(&[&[window(text)]], &[], at(now)) {
            WindowState::Closed { next } => next.map(|next| next.to_string()),
            other => panic!("{text} at {now}: {other:?}"),
        }
    }

    fn is_open(text: &str, now: &str) -> bool {
        window_state(&[&[window(text)]], &[], at(now)) == WindowState::Open
    }

    #[test]
    fn window_across_midnight_belongs_to_the_day_on_which_it_begins() {
        let text = "mon-thu 22:00-04:00 UTC";
        // 2026-08-20 is a Thursday.
        for (now, open) in [
            ("2026-08-20T21:59:59Z", false),
            ("2026-08-20T22:00:00Z", true),
            ("2026-08-21T03:59:59Z", true),
            ("2026-08-21T04:00:00Z", false),
            ("2026-08-21T22:00:00Z", false),
            ("2026-08-24T03:00:00Z", false),
        ] {
            assert_eq!(is_open(text, now), open, "{now}");
        }
        assert_eq!(next(text, "2026-08-21T04:00:00Z").as_deref(), Some("2026-08-24T22:00:00Z"));
        assert!(
            is_open("00:00-00:00 UTC", "2026-08-20T12:00:00Z") && is_open("12:00-24:00 UTC", "2026-08-20T23:59:00Z")
        );
    }

    /// The hours are those of the zone, also when its clocks change.
    #[test]
    fn window_keeps_its_hours_when_the_clocks_change() {
        let night = "22:00-04:00 Europe/Berlin";
        assert!(is_open(night, "2026-10-24T20:00:00Z") && !is_open(night, "2026-10-25T03:00:00Z"));
        assert!(is_open(night, "2026-10-25T21:00:00Z") && !is_open(night, "2026-10-25T20:59:59Z"));
        // The hour from 02:00 comes twice on 2026-10-25, and never on 2027-03-28.
        let repeated = "02:00-03:00 Europe/Berlin";
        for now in ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"] {
            assert!(is_open(repeated, now), "{now}");
        }
        assert_eq!(next(repeated, "2027-03-27T02:00:00Z").as_deref(), Some("2027-03-29T00:00:00Z"));
        let half = "02:30-05:00 Europe/Berlin";
        assert_eq!(next(half, "2027-03-28T00:00:00Z").as_deref(), Some("2027-03-28T01:00:00Z"));
        assert!(is_open("01:30-01:45 America/New_York", "2026-11-01T05:35:00Z"));
        assert!(is_open("01:30-01:45 America/New_York", "2026-11-01T06:35:00Z"));
        assert_eq!(next("09:00-10:00 Asia/Kolkata", "2026-12-31T22:00:00Z").as_deref(), Some("2027-01-01T03:30:00Z"));
    }

    #[test]
    fn freeze_overrides_a_window_and_names_its_end() {
        let zone = parse_zone("Europe/Berlin").expect("a zone");
        let day = |text: &str| text.parse().expect("a day");
        let freeze = Freeze { from: day("2026-12-18"), to: day("2027-01-04"), zone, why: "end of year".into() };
        let windows = [window("mon-thu 22:00-04:00 Europe/Berlin")];
        let lists: [&[Window]; 1] = [&windows];
        let found = |now| window_state(&lists, std::slice::from_ref(&freeze), at(now));
        assert_eq!(found("2026-12-17T22:30:00Z"), WindowState::Open);
        let frozen = WindowState::Frozen { why: "end of year".into(), next: Some(at("2027-01-04T23:00:00Z")) };
        assert_eq!(found("2026-12-17T23:00:00Z"), frozen, "both days are frozen, in their zone");
        assert_eq!(found("2027-01-04T23:00:00Z"), WindowState::Open, "the window of Monday continues");
        let always = window_state(&[], std::slice::from_ref(&freeze), at("2026-12-20T00:00:00Z"));
        assert!(matches!(always, WindowState::Frozen { next: Some(next), .. } if next == at("2027-01-04T23:00:00Z")));
    }

    /// A night that loses or gains an hour, the last of a month or a year, and zones that are not whole hours away.
    #[test]
    fn nights_at_the_edges_of_the_calendar_have_their_hours() {
        let hours = |text: &str, from: &str, minutes: i64| {
            let times = (0..minutes).map(|minute| at(from) + jiff::SignedDuration::from_mins(minute));
            times.filter(|time| is_open(text, &time.to_string())).count()
        };
        // From noon to noon in Berlin: six hours, five when the clocks go forward, seven when they go back.
        for (noon, minutes) in [
            ("2026-08-20T10:00:00Z", 360),
            ("2027-03-27T11:00:00Z", 300),
            ("2026-10-24T10:00:00Z", 420),
            ("2026-12-31T11:00:00Z", 360),
            ("2028-02-28T11:00:00Z", 360),
        ] {
            assert_eq!(hours("22:00-04:00 Europe/Berlin", noon, 25 * 60), minutes, "{noon}");
        }
        assert_eq!(hours("22:00-04:00 America/New_York", "2026-10-31T16:00:00Z", 25 * 60), 420);
        assert_eq!(hours("02:15-02:45 Europe/Berlin", "2027-03-27T11:00:00Z", 24 * 60), 0, "it never comes");
        // The last day of a month that begins on another weekday.
        assert!(is_open("sat 23:30-00:30 Asia/Kathmandu", "2026-10-31T18:20:00Z"));
        assert!(!is_open("sun 23:30-00:30 Asia/Kathmandu", "2026-10-31T18:20:00Z"));
        assert_eq!(
            next("09:00-10:00 Australia/Lord_Howe", "2026-12-31T00:00:00Z").as_deref(),
            Some("2026-12-31T22:00:00Z")
        );
    }

    /// The database is part of the program, with the names that zones had before, so that no image of a container matters.
    #[test]
    fn zones_have_their_old_and_new_names() {
        for (old, new) in
            [("Europe/Kiev", "Europe/Kyiv"), ("Asia/Calcutta", "Asia/Kolkata"), ("US/Pacific", "America/Los_Angeles")]
        {
            for now in ["2026-01-15T12:00:00Z", "2026-07-15T12:00:00Z"] {
                assert_eq!(
                    next(&format!("03:00-04:00 {old}"), now),
                    next(&format!("03:00-04:00 {new}"), now),
                    "{old} is {new}"
                );
            }
        }
    }

    #[test]
    fn lists_of_windows_narrow_each_other() {
        let (all, wave) = ([window("mon-sun 20:00-06:00 UTC")], [window("sat-sun 04:00-08:00 UTC")]);
        let found = window_state(&[&all, &wave], &[], at("2026-08-20T21:00:00Z"));
        assert_eq!(found, WindowState::Closed { next: Some(at("2026-08-22T04:00:00Z")) });
        let never = [window("12:00-13:00 UTC")];
        assert_eq!(window_state(&[&all, &never], &[], at("2026-08-20T21:00:00Z")), WindowState::Closed { next: None });
        assert!(!opens_for_half_an_hour(&[&all, &never], &[], at("2026-08-20T21:00:00Z")));
        assert!(!opens_for_half_an_hour(&[&[window("12:00-12:20 UTC")]], &[], at("2026-08-20T21:00:00Z")));
        assert!(opens_for_half_an_hour(&[&all, &wave], &[], at("2026-08-20T21:00:00Z")));
    }

    /// At the time of the message it is Friday by UTC, and Saturday in Berlin.
    #[test]
    fn next_opening_is_the_earliest_of_all_zones() {
        let windows = [window("08:00-09:00 UTC"), window("sat 22:00-23:00 Europe/Berlin")];
        let found = window_state(&[&windows], &[], at("2027-01-15T23:30:00Z"));
        assert_eq!(found, WindowState::Closed { next: Some(at("2027-01-16T08:00:00Z")) });
    }

    #[test]
    fn mistakes_in_a_window_are_named() {
        for (text, words) in [
            ("", "is not a window"),
            ("weekend 02:00-06:00 UTC", "names no days"),
            ("sat 2:00-6:00 UTC", "are not valid hours"),
            ("sat 02:00-25:00 UTC", "are not valid hours"),
            ("sat 02:00 UTC", "are not valid hours"),
            ("sat 02:00-06:00 Europe/Berln", "did you mean Europe/Berlin?"),
            ("sat 02:00-06:00 CET+1", "is not a time zone"),
        ] {
            let error = parse_window(text).expect_err(text);
            assert!(error.contains(words), "{text:?}: {error}");
        }
        assert_eq!(window("fri-mon 02:00-06:00 UTC").days, [true, false, false, false, true, true, true]);
    }
}
