"""The control process: findings in; alerts, webhooks, breakers and the HTTP API out.

It shares no interpreter with decoding, detection or the store, and imports nothing heavy, so that
`/v1/check` stays fast while those are busy.
"""

from __future__ import annotations

import ipaddress
import logging
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import uvicorn
from prometheus_client import CollectorRegistry, disable_created_metrics

from api.alertparts import alert_parts, alert_settings, stop_links
from api.app import create_app
from api.auth import Authority, Token, configured_tokens
from api.following import following
from api.headers import SecurityHeaders
from api.hosts import KnownHosts
from api.httpserver import EndingServer, HttpBounds, bounded, room_for_connections
from api.pages import OwnPagesOnly
from api.policyfile import PolicyError
from api.policyrules import destinations_of, policy_of
from api.portions import Portions
from api.process import read_options, say_ready, set_up_logging
from api.ratelimit import Limits, RateLimiter
from api.refusals import Refusals
from api.reload import PolicyKeeper, PolicyPlace
from api.services import MetricsSource, Probe, Services
from control.actions import ActionConfig, Actions, actions_of, notifiers_of
from control.alerts.settings import AlertSettings
from control.brakes import brakes_of
from control.db import GONE, ControlDb, ControlDbError, ControlDbInUseError
from control.delivery import Delivery
from control.duties import Duty
from control.facts import FactsDuty, SpoolFacts, SpoolNotes
from control.findings import SpoolFindings
from control.handoff.reports import HandoffDuty, Reports
from control.metrics import ControlMetrics
from control.modes import Modes
from control.notifiers.catalog import NotifierConfig, build, configs
from control.outbox import Outbox
from control.policy import Policy, PolicyHolder
from control.retry import RetryPolicy
from control.service import Control, ControlLoop, LoopSettings
from control.stop_link import LinkKeyError
from control.tokenfile import any_token
from control.tokens import TokenBook, TokenUse

_log = logging.getLogger(__name__)

OnReady: TypeAlias = Callable[[int], None]
"""Told the API's port once the process serves."""

BAD_CONFIGURATION: Final = 2
_PREDECESSOR_S: Final = 15.0
_STALLED_S: Final = 10.0
_PEER_TIMEOUT_S: Final = 1.0
_BODY_TIMEOUT_S: Final = 10.0
_SWITCH_INTERVAL_S: Final = 0.0005
_INGEST: Final = "ingest"
# What ingest's metrics say when it is not well (`api/metrics.py`), and what that means.
_REFUSES: Final = {
    'recloser_spool_refuses{reason="disk"} 1.0': "the disk to take writes; requests are refused",
    'recloser_spool_refuses{reason="full"} 1.0': "room in the full spool; requests are refused",
}
_STORE_AWAY: Final = "recloser_store_up 0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another process of the sidecar: `/readyz` waits for its metrics, `/metrics` shows them."""

    name: str
    metrics_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOptions:
    """Everything that the control process needs to know. Port 0 picks one.

    Raises `ValueError` when it would listen to others than this machine without tokens.
    """

    spool_path: Path
    control_path: Path
    host: str = "127.0.0.1"
    port: int = 0
    tokens: tuple[Token, ...] = ()
    policy: Policy = field(default_factory=Policy)
    policy_place: PolicyPlace | None = None
    actions: tuple[ActionConfig, ...] = ()
    destinations: tuple[NotifierConfig, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    loop: LoopSettings = field(default_factory=LoopSettings)
    peers: tuple[Peer, ...] = ()
    host_names: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    alerts: AlertSettings = field(default_factory=AlertSettings)

    def __post_init__(self) -> None:
        """Refuse to serve strangers: tokens may be those of the configuration or those of `control.db`."""
        if not self.tokens and not _is_loopback(self.host) and not any_token(self.control_path):
            raise ValueError(
                f"host: {self.host} can be reached by others; set tokens, or listen on 127.0.0.1"
            )


class ControlProcess:
    """All parts, built and wired. `start` begins to work, `stop` ends in order; both may be called twice."""

    def __init__(self, options: ControlOptions) -> None:
        registry = CollectorRegistry()
        metrics = ControlMetrics(registry)
        notifiers = build(
            options.destinations,
            templates=options.templates,
            on_broken=lambda kind: metrics.template_failures.labels(kind).inc(),
        )
        self._db = _open(options.control_path)
        self._source = SpoolFindings(options.spool_path)
        outbox = Outbox(self._db, options.retry, now_ns=time.time_ns, random=random.random)
        hooks = notifiers_of(options.actions)
        self._delivery = Delivery(outbox, {**notifiers, **hooks}, metrics, now_ns=time.time_ns)
        actions = Actions(options.actions, hooks, outbox, self._delivery.wake)
        holder = PolicyHolder(options.policy)
        try:
            self._policy = PolicyKeeper(holder, options.policy_place, self._db, metrics, time.time_ns)
        except PolicyError:
            self._db.close()
            raise
        modes = Modes(self._db, holder, metrics, time.time_ns)
        spool_notes = SpoolNotes(options.spool_path)
        brakes = brakes_of(self._db, holder, spool_notes.get, time.time_ns, spool_notes.active_sessions)
        brakes.breakers.hooks.on_write = actions.on_write
        self._facts = SpoolFacts(options.spool_path)
        links = stop_links(options.alerts, options.control_path.parent)
        control = Control(
            db=self._db,
            source=self._source,
            policy=holder,
            takers=(modes.take,),
            breakers=brakes.breakers,
            outbox=outbox,
            notifiers=notifiers,
            delivery=self._delivery,
            metrics=metrics,
            now_ns=time.time_ns,
            alerts=alert_parts(options.alerts, links, options.spool_path),
        )
        tokens = TokenBook(self._db, time.time_ns, configured=options.tokens)
        self._refusals = Refusals(
            self._db, time.time_ns, lambda status: metrics.refused_requests.labels(str(status)).inc()
        )
        self._token_use = TokenUse(tokens)
        takers = (*brakes.takers, control.desk.take_fact)
        facts = FactsDuty(self._db, self._facts, takers, metrics, recall=brakes.recall)
        notes_of = SpoolNotes(options.spool_path).get
        reports = HandoffDuty(self._db, Reports(self._db, notes_of, time.time_ns), time.time_ns)
        duties: tuple[Duty, ...] = (
            facts,
            brakes.turn,
            reports,
            self._refusals,
            self._token_use,
            self._policy,
            modes,
            *control.desk.duties,
        )
        self._loop = ControlLoop(control, options.loop, time.monotonic, duties=duties)
        self._control = control
        self._stopped = False
        self.services = Services(
            control=control,
            authority=Authority(
                book=tokens,
                limiter=RateLimiter(options.limits, time.monotonic, metrics.checks_over_limit.inc),
                refused=self._refusals,
            ),
            tokens=tokens,
            policy=self._policy,
            modes=modes,
            stop_links=links,
            following=following(control, time.time_ns),
            budgets=brakes.budgets,
            dead_calls=brakes.dead_calls,
            registry=registry,
            now_ns=time.time_ns,
            probes={"control": self._probe} | {peer.name: _peer_probe(peer) for peer in options.peers},
            asides={"policy": self._policy.aside, **_asides(options.peers)},
            metrics_sources=tuple(_peer_metrics(peer) for peer in options.peers),
            notes_of=notes_of,
        )

    def start(self) -> None:
        """Deliver what is pending, and follow the findings."""
        self._delivery.start()
        self._loop.start()

    def stop(self) -> None:
        """End the threads, then let go of the files."""
        if self._stopped:
            return
        self._stopped = True
        self._loop.stop()
        self._delivery.stop()
        self._control.settle()
        self._refusals.flush()
        self._token_use.turn()
        self._source.close()
        self._facts.close()
        self._db.close()

    def _probe(self) -> str | None:
        if self._db.gone:
            return f"its file: {self._db.path.name} {GONE}"
        if not self._loop.alive or time.monotonic() - self._loop.last_turn > _STALLED_S:
            return "the control loop to go on"
        if not self._delivery.alive:
            return "the delivery workers to run"
        return self._control.waiting_for


def run_control(options: ControlOptions, on_ready: OnReady) -> None:
    """Serve until SIGTERM or SIGINT; then finish open requests, end the threads and return."""
    # A waiting event loop takes the interpreter back from a busy thread after this time, not after 5 ms.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    process = ControlProcess(options)
    signal.signal(signal.SIGHUP, lambda _number, _frame: process.services.policy.ask())
    try:
        server = _server(process.services, options.host_names)
        _end_on_signals(server)
        if process.services.authority.open:
            _log.info("there are no tokens: everything is allowed, to this machine only (%s)", options.host)
        with _listen(options.host, options.port) as listener:
            process.start()
            on_ready(listener.getsockname()[1])
            server.run(sockets=[listener])
    finally:
        process.stop()


def main() -> None:
    """Run as a child of the supervisor."""
    given = read_options()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it ships without types
    set_up_logging("control", str(_mapping(given["settings"])["log_level"]))
    try:
        options = options_from(given)
    except ValueError as error:
        sys.stderr.write(f"recloser: {error}\n")
        raise SystemExit(BAD_CONFIGURATION) from error
    try:
        run_control(options, lambda port: say_ready(port=port))
    except PolicyError as error:
        sys.stderr.write("".join(f"recloser: {line}\n" for line in str(error).splitlines()))
        raise SystemExit(BAD_CONFIGURATION) from error
    except (ControlDbError, LinkKeyError) as error:
        sys.stderr.write(f"recloser: {error}\n")
        raise SystemExit(1) from error


def options_from(given: Mapping[str, object]) -> ControlOptions:
    """Read what the supervisor says: the settings (`api.config.Settings` as plain data) and the ports.

    Raises `ValueError` that names the key of a setting that makes no sense.
    """
    settings = _mapping(given["settings"])
    data_dir = Path(settings["data_dir"])
    host: str = settings["host"]
    return ControlOptions(
        spool_path=data_dir / "spool.db",
        control_path=data_dir / "control.db",
        host=host,
        host_names=(host, *settings["allowed_hosts"]),
        port=int(str(given["api_port"])),
        tokens=configured_tokens(settings["tokens"]),
        limits=Limits(**settings["limits"]),
        policy=policy_of(settings["policy"], settings["escalate_after"], destinations_of(settings)),
        policy_place=_policy_place(settings),
        actions=actions_of(settings),
        retry=RetryPolicy(**settings["delivery"]),
        alerts=alert_settings(
            settings["alerts"], destinations_of(settings), host, int(str(given["api_port"]))
        ),
        destinations=configs(settings),
        templates={kind: path for kind, path in settings["templates"].items() if path},
        peers=(Peer(name=_INGEST, metrics_url=f"http://127.0.0.1:{given['metrics_port']}/metrics"),),
    )


def _open(path: Path) -> ControlDb:
    """Open the database, waiting for a predecessor that is still ending."""
    deadline = time.monotonic() + _PREDECESSOR_S
    while True:
        try:
            return ControlDb(path)
        except ControlDbInUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _policy_place(settings: Mapping[str, Any]) -> PolicyPlace | None:
    if settings["policy_file"] is None:
        return None
    return PolicyPlace(
        path=Path(settings["policy_file"]).absolute(),
        destinations=tuple(sorted(destinations_of(settings))),
        escalate_after=settings["escalate_after"],
    )


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, got {type(value).__name__}")
    return value


def _server(services: Services, host_names: tuple[str, ...]) -> uvicorn.Server:
    app = create_app(services)

    def unguarded() -> bool:
        return services.authority.open

    bounds = HttpBounds(body_timeout_s=_BODY_TIMEOUT_S, max_connections=room_for_connections())
    config = uvicorn.Config(
        Portions(SecurityHeaders(KnownHosts(OwnPagesOnly(app, unguarded), host_names, unguarded))),
        loop="uvloop",
        http=bounded(bounds),
        ws="none",
        log_level="error",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
    )
    return EndingServer(config, services.following.hub.end)


def _end_on_signals(server: uvicorn.Server) -> None:
    """End the server also when the signal comes before it serves, and survive its raising it once more."""

    def end(_number: int, _frame: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except BaseException:
        listener.close()
        raise
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _peer_metrics(peer: Peer) -> MetricsSource:
    def read() -> bytes:
        try:
            answer = httpx.get(peer.metrics_url, timeout=_PEER_TIMEOUT_S, trust_env=False)
        except httpx.HTTPError as error:
            _log.warning("the metrics of %s cannot be read: %s", peer.name, error)
            return b""
        return answer.content if answer.is_success else b""

    return read


def _peer_probe(peer: Peer) -> Probe:
    def waiting_for() -> str | None:
        try:
            answer = httpx.get(peer.metrics_url, timeout=_PEER_TIMEOUT_S, trust_env=False)
        except httpx.HTTPError as error:
            return f"{peer.name} to answer ({type(error).__name__})"
        if not answer.is_success:
            return f"{peer.name} to be well (HTTP {answer.status_code})"
        lines = answer.text.splitlines()
        return next((reason for line, reason in _REFUSES.items() if line in lines), None)

    return waiting_for


def _asides(peers: tuple[Peer, ...]) -> Mapping[str, Probe]:
    return next(({"store": _store_aside(peer)} for peer in peers if peer.name == _INGEST), {})


def _store_aside(ingest: Peer) -> Probe:
    def away() -> str | None:
        lines = _peer_metrics(ingest)().decode(errors="replace").splitlines()
        return "away; spans wait in the spool" if _STORE_AWAY in lines else None

    return away
