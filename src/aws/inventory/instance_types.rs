//! Instance types: single ones by name, and all of a line (a family's generation) where pools of like types are asked.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::try_join;

use super::batched_cache::{Batched, MaxAge, Read};
use super::cache_config::Ages;
use super::cache_config::limits::{LINES, TYPES};
use super::reads::many;
use super::{FOR_EVER, Inventory};
use crate::aws::instance_type_catalog::line;
use crate::aws::{Aws, AwsResult, Catalogue, InstanceType};

pub(super) struct InstanceTypeCaches {
    types: Arc<Batched<InstanceType>>,
    /// By line.
    catalogues: Arc<Batched<Arc<Catalogue>>>,
    /// Lines that are being read again.
    refreshing: Arc<Mutex<HashSet<String>>>,
    ages: Ages,
}

impl InstanceTypeCaches {
    pub fn new(aws: &Aws, ages: Ages) -> Self {
        // What is known needs no second reading: it would only make answers longer.
        let (once, daily) = (Ages { fill: FOR_EVER, ..ages }, Ages { fill: ages.catalogue, ..ages });
        InstanceTypeCaches {
            types: Batched::new(TYPES, once, types(aws)),
            catalogues: Batched::new(LINES, daily, catalogues(aws)),
            refreshing: Arc::default(),
            ages,
        }
    }

    /// What was read of a type, by its name or with its line.
    fn known(&self, name: &str) -> Option<InstanceType> {
        let of_line = || self.catalogues.last(line(name)?)?.get(name).cloned();
        self.types.last(name).or_else(of_line)
    }

    /// Reads a line again in the background, one at a time; after a failure the old reading stays for a while.
    fn refresh(&self, line: &str) {
        if !self.refreshing.lock().unwrap_or_else(PoisonError::into_inner).insert(line.to_owned()) {
            return;
        }
        let (catalogues, refreshing) = (self.catalogues.clone(), self.refreshing.clone());
        let (line, ages) = (line.to_owned(), self.ages);
        tokio::spawn(async move {
            if let Err(error) = catalogues.get(&line, ages.catalogue).await {
                tracing::warn!(%error, line, "instance types were not read again; what was read before stays");
                tokio::time::sleep(ages.absent).await;
            }
            refreshing.lock().unwrap_or_else(PoisonError::into_inner).remove(&line);
        });
    }
}

fn types(aws: &Aws) -> Read<InstanceType> {
    many(aws, |aws, names| {
        async move { Ok(aws.ec2.instance_types(&names).await?.into_iter().map(|t| (t.name.clone(), t)).collect()) }
            .boxed()
    })
}

/// Lines that are asked for together are one index; a line without a type is not there.
fn catalogues(aws: &Aws) -> Read<Arc<Catalogue>> {
    many(aws, |aws, lines| {
        async move {
            let (types, offers) =
                try_join(aws.ec2.instance_types_from(&lines), aws.ec2.instance_type_offers(&lines)).await?;
            let told: HashSet<_> = types.iter().filter_map(|t| line(&t.name)).collect();
            let index = Arc::new(Catalogue::new(&types, offers));
            let there = lines.into_iter().filter(|line| told.contains(line.as_str()));
            Ok(there.map(|line| (line, index.clone())).collect::<HashMap<_, _>>())
        }
        .boxed()
    })
}

impl Inventory {
    /// An instance type, which never changes; several asked for together are one call, and a line that was read for a
    /// pool needs none.
    pub async fn instance_type(&self, name: &str) -> AwsResult<Option<InstanceType>> {
        match self.instance_types.known(name) {
            Some(known) => Ok(Some(known)),
            None => {
                let age = MaxAge { present: FOR_EVER, absent: self.ages.absent };
                self.instance_types.types.get(name, age).await
            }
        }
    }

    /// Others will be asked for soon, when one is not known: the call that asks for it takes them along.
    pub fn expect_types(&self, name: &str, others: impl FnOnce() -> Vec<String>) {
        if self.instance_types.known(name).is_none() {
            let names = others().into_iter().filter(|other| line(other).is_some());
            names.for_each(|other| self.instance_types.types.expect(other));
        }
    }

    /// The instance types that may be like one. The first who asks for its line waits; when the reading is a day old
    /// the line is read again, and who asks meanwhile gets the old one.
    pub async fn catalogue(&self, name: &str) -> AwsResult<Arc<Catalogue>> {
        let Some(line) = line(name) else { return Ok(Arc::default()) };
        let kept = MaxAge { present: FOR_EVER, absent: self.ages.absent };
        let found = self.instance_types.catalogues.read(line, kept, 0).await?;
        let Some(catalogue) = found.value else { return Ok(Arc::default()) };
        if found.at.elapsed() >= self.ages.catalogue {
            self.instance_types.refresh(line);
        }
        Ok(catalogue)
    }
}
