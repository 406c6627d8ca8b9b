"""The ingest process's own figures, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class IngestMetrics:
    """All metrics of the ingest process, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.accepted = Counter(
            "recloser_accepted_total",
            "Spans, log records and data points taken",
            ["signal", "transport"],
            registry=registry,
        )
        self.rejected = Counter(
            "recloser_rejected_total",
            "Spans, log records and data points refused alone",
            ["signal", "transport", "reason"],
            registry=registry,
        )
        self.repaired = Counter(
            "recloser_repaired_total",
            "Values that were mended rather than refused",
            ["reason"],
            registry=registry,
        )
        self.duplicates = Counter(
            "recloser_duplicates_total",
            "Spans and log records that had been taken before",
            ["signal"],
            registry=registry,
        )
        self.requests = Counter(
            "recloser_requests_total",
            "OTLP requests answered",
            ["signal", "transport", "outcome", "reason"],
            registry=registry,
        )
        self.received_bytes = Counter(
            "recloser_received_bytes_total",
            "Bytes of decompressed request bodies",
            ["signal", "transport"],
            registry=registry,
        )
        self.steps = Counter("recloser_steps_total", "Steps read out of spans", ["kind"], registry=registry)
        self.amended = Counter(
            "recloser_steps_amended_total", "Steps to which later spans added", registry=registry
        )
        self.late = Counter(
            "recloser_steps_late_total", "Steps that came after their scope had moved on", registry=registry
        )
        self.findings = Counter(
            "recloser_findings_total", "Findings, by revision", ["kind", "severity"], registry=registry
        )
        self.failures = Counter(
            "recloser_failures_total",
            "Failed tool calls whose end is known",
            ["error_class", "first_response", "response"],
            registry=registry,
        )
        self.detection_lag = Histogram(
            "recloser_detection_lag_seconds",
            "Arrival of a batch to its findings on disk",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.detector_errors = Gauge(
            "recloser_detector_errors",
            "Detectors that failed and were isolated",
            ["detector"],
            registry=registry,
        )
        self.detection_failures = Counter(
            "recloser_detection_failures_total",
            "Batches, events, findings, rows and checkpoints that detection had to go on without",
            ["what"],
            registry=registry,
        )
        self.stored = Counter(
            "recloser_stored_rows_total", "Rows inserted into ClickHouse", ["table"], registry=registry
        )
        self.refused = Counter(
            "recloser_store_refused_rows_total",
            "Rows that the store can never take; kept in the spool's table `refused`",
            ["table"],
            registry=registry,
        )
        self.store_up = Gauge(
            "recloser_store_up", "Whether the last insert reached the store", registry=registry
        )
        self.store_failures = Counter(
            "recloser_store_failures_total", "Inserts that have to be tried again", registry=registry
        )
        self.spool_bytes = Gauge(
            "recloser_spool_bytes", "Payload bytes waiting in the spool", registry=registry
        )
        self.spool_refuses = Gauge(
            "recloser_spool_refuses",
            "1 while requests are refused because the spool is full or its disk takes nothing",
            ["reason"],
            registry=registry,
        )
        self.token_used = Gauge(
            "recloser_ingest_token_used_timestamp_seconds",
            "When a token last sent spans, unix seconds",
            ["token"],
            registry=registry,
        )
        self.identities = Gauge("recloser_known_identities", "Span identities remembered", registry=registry)
        self.evicted_scopes = Gauge(
            "recloser_evicted_scopes", "Scopes given up for memory", registry=registry
        )
        self.reader_forgotten = Gauge(
            "recloser_reader_forgotten",
            "Traces, conversations and calls that the reader gave up for memory, pieces it could not write",
            ["what"],
            registry=registry,
        )
        self.open_scopes = Gauge(
            "recloser_open_scopes", "Scopes that detectors hold state for", registry=registry
        )
        self.stage_cpu = Counter(
            "recloser_stage_cpu_seconds_total",
            "CPU of the ingest process by stage",
            ["stage"],
            registry=registry,
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the CPU that this thread spends inside as that of the stage `name`."""
        started = time.thread_time()
        try:
            yield
        finally:
            self.stage_cpu.labels(name).inc(time.thread_time() - started)


class ReceiverCounters:
    """What the receivers count, as Prometheus counters."""

    def __init__(self, metrics: IngestMetrics) -> None:
        self._metrics = metrics

    def request(self, signal: str, transport: str, outcome: str, reason: str) -> None:
        """See `collector.receivers.metrics`."""
        self._metrics.requests.labels(signal, transport, outcome, reason).inc()

    def records(self, signal: str, transport: str, outcome: str, reason: str, count: int) -> None:
        """See `collector.receivers.metrics`."""
        if outcome == "accepted":
            self._metrics.accepted.labels(signal, transport).inc(count)
        else:
            self._metrics.rejected.labels(signal, transport, reason).inc(count)

    def received(self, signal: str, transport: str, body_bytes: int) -> None:
        """See `collector.receivers.metrics`."""
        self._metrics.received_bytes.labels(signal, transport).inc(body_bytes)
