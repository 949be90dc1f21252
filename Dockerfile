# One image for the three programs: the webhook server, `python -m controllers` and `python -m healthchecker`; and
# for the command `drawbridge`, whose page `python -m dashboard` serves in the cluster.
# It holds what they need to run, and nothing else: no shell, no package manager, no compiler.

# Debian 12, whose Python is of the version that the tests run on; any registry's copy of it will do.
ARG BASE=debian:12.11-slim@sha256:b1a741487078b369e78119849663d7f1a5341ef2768798f7b7406c4240f86aef

FROM ${BASE} AS tools
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3-venv \
    && rm -rf /var/lib/apt/lists/*

# What lies below the programs, as Debian packages it. A scanner of images finds in status.d what is there.
FROM tools AS system
WORKDIR /packages
RUN apt-get update \
    && apt-get download base-files libbz2-1.0 libc6 libexpat1 libffi8 libgcc-s1 liblzma5 libpython3.11-minimal \
        libpython3.11-stdlib libssl3 libuuid1 python3.11-minimal zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /system/var/lib/dpkg/status.d \
    && for package in *.deb; do \
        dpkg --extract "$package" /system \
        && dpkg --field "$package" > "/system/var/lib/dpkg/status.d/${package%%_*}" || exit 1; \
    done \
    && printf 'root:x:0:0::/:/none\nnonroot:x:65532:65532::/tmp:/none\n' > /system/etc/passwd \
    && printf 'root:x:0:\nnonroot:x:65532:\n' > /system/etc/group \
    && printf 'hosts: files dns\n' > /system/etc/nsswitch.conf \
    && find /system/usr/share/doc -type f ! -name copyright -delete \
    && rm -rf /system/usr/share/man /system/usr/lib/python3.11/test \
    && cd /system/usr/lib/python3.11/lib-dynload \
    && rm _crypt.* _curses.* _curses_panel.* _dbm.* _sqlite3.* nis.* readline.* \
    && python3.11 -m compileall -q -j 0 --invalidation-mode unchecked-hash -s /system /system/usr/lib/python3.11

# Of the official client, kube/connection.py uses the configuration and the transport, for a kubeconfig: its models, its
# calls, and their twins for asyncio would be the greater half of the image. Of rich, the command draws tables only.
FROM tools AS venv
WORKDIR /opt/venv
COPY requirements.txt /tmp/
RUN python3.11 -m venv /opt/venv \
    && bin/pip install --no-cache-dir --no-compile --no-deps --only-binary :all: \
        --requirement /tmp/requirements.txt \
    && bin/pip uninstall --yes aiohappyeyeballs aiohttp aiohttp-retry aiosignal attrs frozenlist multidict propcache yarl \
    && bin/pip uninstall --yes markdown-it-py mdurl pygments setuptools pip \
    && cd lib/python3.11/site-packages \
    && rm -r kubernetes/aio kubernetes/client/api kubernetes/client/models/v[0-9]*.py \
    && find . -name '*_test.py' -delete \
    && python3.11 -m compileall -q -j 0 --invalidation-mode unchecked-hash . \
    && cd /opt/venv/bin \
    && find . -type f ! -name gunicorn -delete \
    && printf '#!/opt/venv/bin/python3\nimport sys\nsys.path.insert(0, "/app")\nfrom cli.app import main\nmain()\n' > drawbridge \
    && chmod 755 drawbridge

FROM tools AS app
WORKDIR /app
COPY calico calico
COPY certs certs
COPY cli cli
COPY cloud cloud
COPY controllers controllers
COPY dashboard dashboard
COPY healthchecker healthchecker
COPY api api
COPY kube kube
COPY runtime runtime
COPY settings settings
COPY telemetry telemetry
COPY webhook webhook
COPY features.py gunicorn.conf.py wsgi.py LICENSE ./
RUN python3.11 -m compileall -q -j 0 --invalidation-mode unchecked-hash .

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Drawbridge" \
      org.opencontainers.image.description="Admission webhooks that hold an object at the gate until the work behind it is done" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV DRAWBRIDGE_VERSION=${VERSION} DRAWBRIDGE_REVISION=${REVISION}
COPY --from=system /system /
COPY --from=tools /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=venv /opt/venv /opt/venv
COPY --from=app /app /app
# The root is read-only, and bytecode is there already.
ENV PATH=/opt/venv/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /app
USER 65532:65532
EXPOSE 9443 8081 8080
CMD ["gunicorn", "-c", "gunicorn.conf.py", "wsgi:app"]
