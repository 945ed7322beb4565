"""Metrics belong to one process' registry and are shown in Prometheus' format."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from skep.telemetry.metrics import CONTENT_TYPE, Metrics


def test_exposition_holds_what_was_counted() -> None:
    metrics = Metrics()
    metrics.decisions.labels("placed").inc(3)
    metrics.http_request_seconds.labels("api", "GET", "/servers/{id}", "200").observe(0.01)
    metrics.hosts.labels("cell1", "up").set(3)
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }
    assert samples["skep_placement_decisions_total", (("outcome", "placed"),)] == 3
    assert samples["skep_hosts", (("cell", "cell1"), ("state", "up"))] == 3
    labels = (("method", "GET"), ("route", "/servers/{id}"), ("service", "api"), ("status", "200"))
    assert samples["skep_http_request_seconds_count", labels] == 1
    assert CONTENT_TYPE.startswith("text/plain")


def test_two_registries_do_not_know_each_other() -> None:
    one, other = Metrics(), Metrics()
    one.backlog.set(5)
    assert other.registry.get_sample_value("skep_build_backlog") == 0


def test_there_are_no_series_of_when_counting_began() -> None:
    metrics = Metrics()
    metrics.decisions.labels("placed").inc()
    assert b'skep_placement_decisions_total{outcome="placed"} 1.0' in metrics.exposition()
    assert b"_created" not in metrics.exposition()
