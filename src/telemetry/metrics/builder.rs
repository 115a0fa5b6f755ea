//! How metrics are made and registered.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// The value of `controller` and of `name` in the series that controller-runtime would serve.
pub(super) const CONTROLLER: &str = "instancegroup";

/// Creates and registers metrics. A "child" has one label with the name of the controller, so that its series
/// exists from the start.
pub(super) struct MetricBuilder<'a>(pub &'a Registry);

impl MetricBuilder<'_> {
    pub(super) fn add<C: Collector + Clone + 'static>(&self, metric: C) -> prometheus::Result<C> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.add(IntGauge::new(name, help)?)
    }

    pub(super) fn child_counter(&self, name: &str, help: &str, label: &str) -> prometheus::Result<IntCounter> {
        self.counters(name, help, &[label])?.get_metric_with_label_values(&[CONTROLLER])
    }

    pub(super) fn child_gauge(&self, name: &str, help: &str, label: &str) -> prometheus::Result<IntGauge> {
        self.gauges(name, help, &[label])?.get_metric_with_label_values(&[CONTROLLER])
    }

    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: Vec<f64>,
    ) -> prometheus::Result<HistogramVec> {
        self.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels)?)
    }

    pub(super) fn child_histogram(
        &self,
        name: &str,
        help: &str,
        label: &str,
        buckets: Vec<f64>,
    ) -> prometheus::Result<Histogram> {
        self.histograms(name, help, &[label], buckets)?.get_metric_with_label_values(&[CONTROLLER])
    }
}
