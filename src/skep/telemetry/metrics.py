"""What Prometheus may ask for. One `Metrics` per process, handed to whoever counts something."""

from __future__ import annotations

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from skep.telemetry.guest_metrics import GuestMetrics

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""Media type of `Metrics.exposition`."""

_STEP_SECONDS = (0.0005, 0.002, 0.005, 0.02, 0.05, 0.2, 0.5, 2.0, 5.0, 20.0, 60.0, 300.0)
_REQUEST_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_DECISION_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.2, 1.0)


disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives it no types
# A series of when each counter began doubles what Prometheus keeps and answers no question that anybody has.


class Metrics:
    """The registry of a process and everything it counts. Durations are seconds."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.build_step_seconds = Histogram(
            "skep_build_step_seconds",
            "Time a step of a build, a delete or a repair took, by its name and how it ended",
            ("step", "outcome"),
            buckets=_STEP_SECONDS,
            registry=self.registry,
        )
        self.actions = Counter(
            "skep_actions",
            "Actions on servers that are over, by name and how they ended (ok, error)",
            ("action", "outcome"),
            registry=self.registry,
        )
        self.events_copied = Counter(
            "skep_events_copied", "Events of servers that were copied from cells into the log", registry=self.registry
        )
        self.events_pruned = Counter(
            "skep_events_pruned", "Events of servers that were pruned from the log", registry=self.registry
        )
        self.events_unreadable = Counter(
            "skep_events_unreadable",
            "Facts of cells that could not be read: the log says so in their place",
            registry=self.registry,
        )
        self.event_streams = Gauge(
            "skep_event_streams", "Streams of events that are open in this process", registry=self.registry
        )
        self.webhook_requests = Counter(
            "skep_event_webhook_requests",
            "Requests to webhooks, by webhook and outcome (taken, refused)",
            ("webhook", "outcome"),
            registry=self.registry,
        )
        self.webhook_lag = Gauge(
            "skep_event_webhook_lag_seconds",
            "Seconds since a webhook had been told everything, by webhook; 0 where another super conductor tells it",
            ("webhook",),
            registry=self.registry,
        )
        self.events_lag = Gauge(
            "skep_events_lag_seconds",
            "Seconds since all events of a cell were in the log, by cell; it grows while the cell does not answer",
            ("cell",),
            registry=self.registry,
        )
        self.http_request_seconds = Histogram(
            "skep_http_request_seconds",
            "Time until an HTTP request was answered, by service, method, route pattern and status",
            ("service", "method", "route", "status"),
            buckets=_REQUEST_SECONDS,
            registry=self.registry,
        )
        self.http_connections = Gauge(
            "skep_http_connections",
            "Open connections of an HTTP port, by the setting that names the port",
            ("port",),
            registry=self.registry,
        )
        self.http_refused = Counter(
            "skep_http_refused",
            "Connections that an HTTP port ended by its limits, by the port's setting and the reason",
            ("port", "reason"),
            registry=self.registry,
        )
        self.requests_refused = Counter(
            "skep_requests_refused",
            "Requests to the compute API that were answered 429, by the limit (rate, at_once, address)",
            ("limit",),
            registry=self.registry,
        )
        self.sign_ins = Counter(
            "skep_sign_ins",
            "Passwords shown to the embedded identity service, by outcome (right, wrong, delayed, overloaded)",
            ("outcome",),
            registry=self.registry,
        )
        self.images_refused = Counter(
            "skep_images_refused",
            "Images and uploads that the embedded image service refused, by the limit that they would break",
            ("limit",),
            registry=self.registry,
        )
        self.images_precached = Counter(
            "skep_images_precached",
            "Images that hosts of aggregates were to cache, by the outcome (cached, existing, error, unsupported)",
            ("outcome",),
            registry=self.registry,
        )
        self.neighbour_away = Gauge(
            "skep_neighbour_away",
            "1 while a service (identity, image, network, volume) counts as away in this process",
            ("service",),
            registry=self.registry,
        )
        self.neighbour_spared = Counter(
            "skep_neighbour_spared",
            "Requests that were not sent to a service because it counts as away, by the service",
            ("service",),
            registry=self.registry,
        )
        self.sign_ins_waiting = Gauge(
            "skep_sign_ins_waiting", "Passwords that wait for a thread that hashes", registry=self.registry
        )
        self.decision_seconds = Histogram(
            "skep_placement_decision_seconds",
            "Time select_destinations took",
            buckets=_DECISION_SECONDS,
            registry=self.registry,
        )
        self.decisions = Counter(
            "skep_placement_decisions",
            "Servers a host was looked for, by the answer (placed, no_valid_host, not_ready)",
            ("outcome",),
            registry=self.registry,
        )
        self.plugin_failures = Counter(
            "skep_placement_plugin_failures",
            "How often a filter or weigher of another package failed, by its name",
            ("plugin",),
            registry=self.registry,
        )
        self.plugins_slow = Counter(
            "skep_placement_plugin_slow",
            "How often a filter or weigher of another package ran for a second or longer, by its name",
            ("plugin",),
            registry=self.registry,
        )
        self.claim_conflicts = Counter(
            "skep_placement_claim_conflicts",
            "Requests for hosts of which a write met a record that another scheduler had changed meanwhile; their "
            "share is this by skep_placement_decision_seconds_count",
            registry=self.registry,
        )
        self.transport_refused = Counter(
            "skep_transport_refused",
            "Messages not sent or not handled, by kind (call, cast, answer) and reason",
            ("kind", "reason"),
            registry=self.registry,
        )
        self.transport_connected = Gauge(
            "skep_transport_connected",
            "1 while this process is connected to its messaging server; always 0 where messages stay in the process",
            registry=self.registry,
        )
        self.reports_refused = Counter(
            "skep_host_reports_refused",
            "Reports of hosts that made no sense and were not taken",
            registry=self.registry,
        )
        self.audit_differences = Gauge(
            "skep_audit_differences",
            "Differences that the last audit found, by kind, those that it mended included",
            ("kind",),
            registry=self.registry,
        )
        self.clock_ahead = Gauge(
            "skep_clock_ahead_seconds",
            "By how much this process' clock is ahead of a database's (negative: behind), by which all is judged",
            ("database",),
            registry=self.registry,
        )
        self.notifications_sent = Counter(
            "skep_notifications_sent",
            "Notifications that the broker has taken",
            registry=self.registry,
        )
        self.notifications_dropped = Counter(
            "skep_notifications_dropped",
            "Notifications that no broker gets, by reason (full: the queue was; unsendable; stopped: the process did)",
            ("reason",),
            registry=self.registry,
        )
        self.notifications_waiting = Gauge(
            "skep_notifications_waiting",
            "Notifications that wait for the broker in this process",
            registry=self.registry,
        )
        self.notifications_broker_away = Gauge(
            "skep_notifications_broker_away",
            "1 while the broker of notifications does not take what this process sends",
            registry=self.registry,
        )
        self.driver_calls_hung = Gauge(
            "skep_driver_calls_hung",
            "Calls of the driver of a host of this process that are past their limit, by host and kind of call",
            ("host", "call"),
            registry=self.registry,
        )
        self.guests = GuestMetrics()
        self.registry.register(self.guests)
        self.backlog = Gauge("skep_build_backlog", "Servers waiting for a host (BuildRequests)", registry=self.registry)
        self.hosts = Gauge(
            "skep_hosts",
            "Hosts by cell and state (up, silent, unknown, disabled)",
            ("cell", "state"),
            registry=self.registry,
        )
        self.claims = Gauge("skep_claims", "Claims that no host counts yet, by cell", ("cell",), registry=self.registry)

    def show_clock(self, database: str, ahead: float | None) -> None:
        """Show how far the process' clock is ahead of a database's; None where that is not known any more."""
        if ahead is None:
            self.clock_ahead.remove(database)
        else:
            self.clock_ahead.labels(database).set(ahead)

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format, for `/metrics`; its type is `CONTENT_TYPE`."""
        return generate_latest(self.registry)
