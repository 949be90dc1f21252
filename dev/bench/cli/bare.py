"""`python -I bare.py HOST PORT CA CERTIFICATE KEY < requests.json`: make requests all at once, and drop the answers.

Each is a path and an Accept header. Nothing is imported that TLS does not need, and nothing is decoded: no client of
the same reads can be faster by much.
"""

import http.client
import json
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor

PARALLEL = 16
CHUNK = 1 << 20


def main(host: str, port: str, ca: str, certificate: str, key: str) -> None:
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(certificate, key)
    idle: list[http.client.HTTPSConnection] = []

    def read(path: str, accept: str) -> None:
        try:
            connection = idle.pop()
        except IndexError:
            connection = http.client.HTTPSConnection(host, int(port), context=context)
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        while answer.read(CHUNK):
            pass
        idle.append(connection)

    requests = json.load(sys.stdin)
    with ThreadPoolExecutor(PARALLEL) as executor:
        list(executor.map(read, *zip(*requests, strict=True)))


if __name__ == "__main__":
    main(*sys.argv[1:])
