# The server of a memory: HTTP, the page and the tools of MCP; its encoder is inside.
#
#   docker build -t keepworth .
#   docker run --rm --read-only --tmpfs /tmp -v memory:/data -p 127.0.0.1:8000:8000 -e KEEPWORTH_API_KEY=... keepworth
#
# Without KEEPWORTH_API_KEY it prints a token. Options of `keepworth serve` go behind the image's name, in place of those below.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
WORKDIR /build
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
COPY benchmarks/methods benchmarks/methods
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 KEEPWORTH_CACHE=/opt/keepworth/cache
RUN python -m venv /opt/keepworth/venv
RUN /opt/keepworth/venv/bin/pip install ".[serve]"
RUN /opt/keepworth/venv/bin/keepworth models fetch all-minilm-l6-v2

FROM python:${PYTHON}-slim
RUN useradd --system --uid 10001 --home-dir /data --create-home keepworth
COPY --from=build /opt/keepworth /opt/keepworth
ENV PATH=/opt/keepworth/venv/bin:$PATH KEEPWORTH_CACHE=/opt/keepworth/cache PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["keepworth", "serve"]
CMD ["--memory", "/data/agent.mem", "--host", "0.0.0.0", "--port", "8000", "--mcp"]
