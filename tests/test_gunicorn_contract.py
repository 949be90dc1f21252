"""The worker relies on what gunicorn keeps to itself: a change of it must not pass unseen."""

import hashlib
import inspect

import gunicorn
import pytest
from gunicorn import http, sock
from gunicorn.http import message, parser, unreader, wsgi
from gunicorn.workers import base, gthread

WAY_OUT = "read it again beside webhook/worker.py and webhook/connection.py, then put its new digest here"

RELIED_ON = {
    gthread.PollableMethodQueue: "5b4a78bd3cfb",
    base.Worker.init_process: "114caccd7a0e",
    base.Worker.init_signals: "65442e0602b0",
    base.Worker.load_wsgi: "18b02fc35e96",
    http.get_parser: "b7d8dcde91e2",
    parser.Parser: "3a9c06e348c7",
    unreader.SocketUnreader: "786a257be09e",
    unreader.Unreader: "84aaa8f91fcd",
    message.Message.force_close: "656092cce3c3",
    message.Message.should_close: "37c454bfb3e3",
    wsgi.Response.force_close: "656092cce3c3",
    wsgi.Response.process_headers: "496d84a357b0",
    wsgi.Response.send_headers: "7aff3b7d004f",
    wsgi.Response.write: "a13659ff072c",
    wsgi.Response._emit_body: "df723e865a1e",
    wsgi.Response.should_close: "3888d47a96e2",
    wsgi.Response.start_response: "59799d9ff136",
    wsgi.create: "2c35d4a2dc62",
    sock.BaseSocket.close: "038267beee36",
    gthread.ThreadWorker.__init__: "5681b8b542ea",
    gthread.ThreadWorker.init_process: "e4fc63a1a68e",
    gthread.ThreadWorker.get_thread_pool: "003f3549a71b",
    gthread.ThreadWorker.handle_exit: "b4e7decd4f92",
    gthread.ThreadWorker.set_accept_enabled: "140150ebfd3c",
    gthread.ThreadWorker.enqueue_req: "c9f428953d24",
    gthread.ThreadWorker.accept: "f8dcead3dce5",
    gthread.ThreadWorker.on_client_socket_readable: "aead1a3ea7b7",
    gthread.ThreadWorker.on_pending_socket_readable: "2475f7087832",
    gthread.ThreadWorker.murder_keepalived: "4459960c4ccc",
    gthread.ThreadWorker.murder_pending: "7bf11f464542",
    gthread.ThreadWorker.wait_for_and_dispatch_events: "ea969b352482",
    gthread.ThreadWorker.run: "f92c7394d857",
    gthread.ThreadWorker._cap_keepalive: "745c8ac37108",
    gthread.ThreadWorker.finish_request: "616e7bb15a00",
    gthread.ThreadWorker.handle: "ca85c9be3df7",
    gthread.ThreadWorker._keepalive_after: "4ebdbbc8bf5a",
    gthread.ThreadWorker.handle_request: "6d0de5b91910",
}


def test_gunicorn_is_the_version_that_the_worker_was_written_for() -> None:
    assert gunicorn.__version__ == "27.0.1", (
        "see what the tests below say has moved, then put the version here"
    )


@pytest.mark.parametrize(
    ("thing", "known"), [pytest.param(*it, id=it[0].__qualname__) for it in RELIED_ON.items()]
)
def test_what_the_worker_relies_on_has_not_moved(thing: type, known: str) -> None:
    digest = hashlib.sha256(inspect.getsource(thing).encode()).hexdigest()[:12]
    assert digest == known, f"gunicorn's {thing.__module__}.{thing.__qualname__} has changed: {WAY_OUT}"
