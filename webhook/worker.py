"""A gunicorn thread worker in which no client delays another, and whose end costs no request.

gunicorn's thread worker serves the requests; here handshakes, half-sent requests and closing connections wait in the
poller of the main loop, each with a deadline, and never in a thread. At the limit of connections the one that has been
idle for longest is closed. After SIGTERM it serves on for the drain period, and asks clients to connect again.
It relies on private parts of gunicorn: tests/test_gunicorn_contract.py fails when they change
(docs/decisions/031-our-own-worker-under-gunicorn.md).
"""

import bisect
import selectors
import ssl
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import structlog
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, ThreadWorker

from certs.cert_watcher import ServingPair
from runtime import futures, threading, time
from webhook.admission import ARRIVED
from webhook.connection import (
    Budget,
    Connection,
    Joined,
    Limits,
    Next,
    Refused,
    report_failure,
    report_refusal,
)
from webhook.fair_queue import LONGEST, FairQueue, Usage
from webhook.poller import Poller

log = structlog.stdlib.get_logger(__name__)

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

SWITCH = 0.0005
"""Seconds after which a thread that computes lets another one run: a small request changes threads a few times."""
GREEDY = 16
"""A client address with more than this part of all connections loses its own first."""
RECEIVERS = 1
"""Threads for handshakes and for requests that are not whole: these only compute, and never wait."""
SERVED, NEWCOMERS, LARGE = 4, 2, 1
"""Requests that compute at the same time: of connections that were served before, of others, and large ones of both."""

CALLBACKS = 8
"""Finished jobs that the main loop continues before it looks for new events, and up to ten more."""

_stopping = threading.Event()


def stopping() -> bool:
    """Whether the drain period is over: new requests must go to other replicas."""
    return _stopping.is_set()


class WebhookWorker(ThreadWorker):
    limits = Limits()
    budget = Budget(64 * 1024 * 1024)
    drain_period = 5.0
    """Seconds; set before the worker runs."""
    client_ca: Callable[[], str] = staticmethod(lambda: "")
    """As in `ServingPair`; set before the worker runs."""

    alive: bool
    poller: selectors.BaseSelector
    wsgi: Application
    pending_conns: deque[Connection]
    keepalived_conns: deque[Connection]
    drain_ends: float | None = None

    def init_process(self) -> None:
        self.pair = ServingPair(self.cfg.certfile, self.cfg.keyfile, lambda: self.client_ca())
        self.pair.context()  # fails without a certificate
        # `_make_room` closes connections, not gunicorn's cap on kept-alive ones.
        self.max_keepalived = self.worker_connections
        sys.setswitchinterval(SWITCH)
        super().init_process()

    def load_wsgi(self) -> None:
        """The last that gunicorn does before `run`, which uses the poller first."""
        super().load_wsgi()
        self.poller.close()
        self.poller = Poller()
        self.method_queue.run_callbacks = partial(self.method_queue.run_callbacks, max_callbacks=CALLBACKS)
        self.wsgi = self._connected(self.wsgi)
        usage = Usage()
        self.receivers = FairQueue(futures.ThreadPoolExecutor(RECEIVERS, "receiver").submit, RECEIVERS, usage)
        self.served = FairQueue(self.tpool.submit, SERVED, usage)
        self.newcomers = FairQueue(self.tpool.submit, NEWCOMERS, usage)
        self.large = FairQueue(self.tpool.submit, LARGE, usage)

    def accept(self, listener: Any) -> bool:
        """Wait for the first bytes of a new connection; False when there is none."""
        try:
            sock, client = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        self.nr_conns += 1
        self._wait(
            Connection(self.cfg, sock, (client, listener.getsockname()), self.pair, self.limits, self.budget),
            self.on_pending_socket_readable,
        )
        return True

    def enqueue_req(self, conn: Connection) -> None:
        """A client that was served before needs one turn for all; others line up until a request is whole."""
        if conn.used and not conn.is_partial():
            self._submit(self.served, self.handle, conn)
        else:
            self._submit(self.receivers, self.receive, conn)

    def _submit(self, queue: FairQueue, job: Callable[[Connection], Next], conn: Connection) -> None:
        queue.submit(conn.client[0], partial(job, conn)).add_done_callback(partial(self._done, conn))

    def _queue_of(self, conn: Connection) -> FairQueue:
        """For a request that is whole."""
        if conn.is_large():
            return self.large
        return self.served if conn.used else self.newcomers

    def _done(self, conn: Connection, future: futures.Future[Next]) -> None:
        self.method_queue.defer(self.finish_request, conn, future)

    def handle(self, conn: Connection) -> Next:
        """In a thread: continue the request, and serve it when it is complete."""
        step = self.receive(conn)
        return self.serve(conn) if step is Next.SERVE and not conn.is_large() else step

    def serve(self, conn: Connection) -> Next:
        return Next.KEEP if super().handle(conn) else Next.LINGER

    def receive(self, conn: Connection) -> Next:
        """In a thread: continue the handshake and the request."""
        try:
            return conn.receive()
        except Refused as refused:
            report_refusal(conn.client[0], refused)
            conn.refuse(refused)
            return Next.LINGER
        except OSError as error:
            report_failure(conn.client[0], error)
            # A reset would take away the alert that says why the handshake failed.
            return Next.LINGER if isinstance(error, ssl.SSLError) else Next.CLOSE

    def on_client_socket_readable(self, conn: Connection, client: Any) -> None:
        """A request begins on a connection that was idle."""
        conn.note_arrival()
        super().on_client_socket_readable(conn, client)

    def handle_request(self, req: Any, conn: Connection) -> bool:
        req.arrived = conn.arrived
        if conn.is_old():
            req.force_close()
        return bool(super().handle_request(req, conn))

    def finish_request(self, conn: Connection, fs: futures.Future[Next]) -> None:
        """In the main loop, after `handle`: must not block."""
        try:
            self._proceed(conn, fs.result())
        except Exception as error:
            log.debug("connection dropped", error=repr(error))
            self._close(conn)

    def _proceed(self, conn: Connection, step: Next) -> None:
        match step:
            case Next.KEEP if conn.has_more():
                conn.arrived = time.monotonic()
                self.enqueue_req(conn)
            case Next.KEEP:
                conn.used = True
                conn.set_timeout()
                self._keep(conn)
            case Next.SERVE:
                self._submit(self._queue_of(conn), self.serve, conn)
            case Next.AGAIN:
                self.enqueue_req(conn)
            case Next.WAIT if conn.is_idle():
                self._keep(conn)
            case Next.WAIT:
                self._wait(conn, self.on_pending_socket_readable)
            case Next.LINGER:
                conn.half_close()
                self._wait(conn, self._on_lingering_readable)
            case Next.CLOSE:
                self._close(conn)

    def _wait(self, conn: Connection, then: Callable[[Connection, Any], None]) -> None:
        self._line_up(conn, self.pending_conns, then)

    def _keep(self, conn: Connection) -> None:
        if not self.alive:
            conn.timeout = min(conn.timeout, time.monotonic() + STOP_KEEPALIVE_LINGER)
        self._line_up(conn, self.keepalived_conns, self.on_client_socket_readable)

    def _line_up(
        self, conn: Connection, line: deque[Connection], then: Callable[[Connection, Any], None]
    ) -> None:
        # gunicorn closes what is overdue from the left of its deques.
        bisect.insort(line, conn, key=lambda each: each.timeout)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(then, conn))

    def _make_room(self) -> None:
        """Close the connection that has been idle for longest, first of clients that have many.

        When none is idle all are in the thread pool; if they stay there this replica becomes unready.
        """
        idle = (*self.pending_conns, *self.keepalived_conns)
        if self.nr_conns < self.worker_connections or not idle:
            return
        by_client = Counter(each.client[0] for each in idle)
        greedy = [each for each in idle if by_client[each.client[0]] > self.worker_connections / GREEDY]
        conn = min(greedy or idle, key=lambda each: each.since)
        (self.pending_conns if conn in self.pending_conns else self.keepalived_conns).remove(conn)
        self.poller.unregister(conn.sock)
        self._close(conn)

    def _on_lingering_readable(self, conn: Connection, client: Any) -> None:
        if conn.is_drained():
            self.poller.unregister(client)
            self.pending_conns.remove(conn)
            self._close(conn)

    def _close(self, conn: Connection) -> None:
        self.nr_conns -= 1
        conn.close()

    def handle_exit(self, *_signal: Any) -> None:
        """SIGTERM begins the drain. A signal handler must take no lock: no timer thread."""
        if self.drain_ends is None:
            self.drain_ends = time.monotonic() + self.drain_period
            self.method_queue.defer(lambda: None)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """One turn of the main loop: also makes room, and ends the drain in time."""
        if self.alive and self.drain_ends is not None:
            timeout = min(timeout, max(self.drain_ends - time.monotonic(), 0.0))
        super().wait_for_and_dispatch_events(min(timeout, LONGEST))
        for queue in (self.receivers, self.served, self.newcomers, self.large):
            queue.start_due()
        if self.alive:
            self._make_room()
        if self.alive and self.drain_ends is not None and time.monotonic() >= self.drain_ends:
            log.info("drained, finishing requests in flight")
            _stopping.set()
            self.alive = False

    def set_accept_enabled(self, enabled: bool) -> None:
        """As gunicorn's; at the end, accept the backlog, then close the listeners so that clients are refused."""
        if self.alive:
            super().set_accept_enabled(enabled)
            return
        for listener in self.sockets:
            while self._accepting and self.accept(listener):
                pass
        super().set_accept_enabled(False)
        for listener in self.sockets:
            listener.close()

    def _connected(self, application: Application) -> Application:
        """Pass on when the request arrived, obey `Connection: close`, which gunicorn drops, and send all at once."""

        def connected(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            response = start_response.__self__
            environ[ARRIVED] = response.req.arrived

            def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
                if self.drain_ends is not None or ("Connection", "close") in headers:
                    response.force_close()
                write = start_response(status, headers, exc_info)
                if response.response_length and not response._omits_body:
                    response.sock = Joined(response.sock)
                return write

            return application(environ, start)

        return connected
