# coretools in a container: `http` (the default) serves a team over the network, `workstation` one client over stdio.
# How to run them, and what holds inside them: docs/deploy/containers.md.
#
#     docker build -t coretools-http .
#     docker build -t coretools-workstation --target workstation .
#     docker build -t coretools-http --build-arg EXTRAS="nodejs npm build-essential cargo" .
#
# BASE is any image with Debian's packages and CPython 3.11 or newer; the server runs on that Python. A tag moves: pin it by
# digest for a release (docker buildx imagetools inspect python:3.13-slim-trixie shows it), --build-arg BASE=python@sha256:...
ARG BASE=docker.io/library/python:3.13-slim-trixie

FROM ${BASE} AS build
WORKDIR /build
# Every package is fetched by the hash that constraints.txt has for it, and nothing is fetched after that: coretools and
# what it needs at run time are installed from these files alone, its build backend too.
COPY constraints.txt ./
RUN python3 -m pip download --quiet --no-cache-dir --disable-pip-version-check --require-hashes --no-deps \
        --dest wheels --requirement constraints.txt
# A copy of the interpreter: the base's own `python3` leaves the image below.
RUN python3 -m venv --without-pip --copies /opt/coretools
COPY pyproject.toml README.md LICENSE ./
COPY coretools coretools
COPY servers servers
# The builder has no history to take it from: --build-arg VERSION=$(python -m hatchling version).
ARG VERSION=0.0
# Unchecked hashes: the files never change, so no start looks whether they did, and times play no part.
RUN SETUPTOOLS_SCM_PRETEND_VERSION="${VERSION}" python3 -m pip --python /opt/coretools/bin/python install --quiet --no-cache-dir --disable-pip-version-check \
        --no-index --find-links wheels --no-compile '.[http,redis,nats,otel]' \
    && /opt/coretools/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/coretools/lib

FROM ${BASE} AS runtime
# Debian's packages that commands find beside those here, such as "nodejs npm".
ARG EXTRAS=""
# Whom the server runs as. The owner of the work tree, where it is known: whoami, ssh and Node's os.userInfo() want to know him.
ARG USER_ID=10001
ARG GROUP_ID=10001
# tini: process 1 has to wait for processes whose parents are gone. The server waits for its own children only.
# The programs of the base's Python go: commands have Debian's, with pip and venv, and none of the server's packages.
RUN apt-get update --quiet=2 \
    && DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends \
        bzip2 ca-certificates curl diffutils file git jq less make openssh-client patch procps \
        python-is-python3 python3 python3-pip python3-venv ripgrep rsync tini tree unzip xz-utils zip ${EXTRAS} \
    && find /usr/local/bin \( -name 'python*' -o -name 'pip*' -o -name 'pydoc*' -o -name 'idle*' -o -name '2to3*' \) -delete \
    && rm -rf /usr/local/lib/python3.*/site-packages/pip /usr/local/lib/python3.*/site-packages/pip-* \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log \
        /usr/share/doc-base /usr/share/info /usr/share/locale /usr/share/man \
    && groupadd --non-unique --gid "${GROUP_ID}" coretools \
    && useradd --non-unique --uid "${USER_ID}" --gid "${GROUP_ID}" --no-log-init --home-dir /home/coretools \
        --shell /bin/bash coretools \
    && install --directory --owner root --group root --mode 0755 /home/coretools \
    && install --directory --owner "${USER_ID}" --group "${GROUP_ID}" --mode 0755 /work \
    && install --directory --mode 1777 /run/coretools
COPY --from=build /opt/coretools /opt/coretools
# The home belongs to root: whoever could write there could write the operator's policy. The names are there for a user
# without an entry in /etc/passwd.
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    HOME=/home/coretools \
    USER=coretools \
    LOGNAME=coretools \
    SHELL=/bin/bash \
    TMPDIR=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    CORETOOLS_OWN_CONTAINER=1 \
    CORETOOLS_ROOTS=/work
WORKDIR /work
USER ${USER_ID}:${GROUP_ID}
STOPSIGNAL SIGTERM
LABEL org.opencontainers.image.title="coretools" \
    org.opencontainers.image.description="Developer tools for agents over the Model Context Protocol" \
    org.opencontainers.image.licenses="MIT"

FROM runtime AS workstation
HEALTHCHECK NONE
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/coretools/bin/coretools-workstation"]

FROM runtime AS http
# It refuses to start so without tokens or an issuer, and without names to be called by.
ENV CORETOOLS_HTTP_SERVER__HOST=0.0.0.0 \
    CORETOOLS_HTTP_SERVER__PORT=8765
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["/opt/coretools/bin/python", "-P", "-m", "coretools.servers.healthcheck"]
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/coretools/bin/coretools-http"]
