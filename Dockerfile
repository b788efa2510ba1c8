# The service on its embedded default: one process, one volume, no rights. From the top of the repository:
#   docker build -t stream_dr .
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    NUMBA_CACHE_DIR=/var/cache/stream_dr \
    OPENBLAS_THREAD_TIMEOUT=4 \
    STREAM_DR_DIR=/data \
    STREAM_DR_HOST=0.0.0.0 \
    STREAM_DR_PORT=8000

# By number, so that a volume's owner and Kubernetes' runAsNonRoot can be checked without /etc/passwd.
RUN groupadd --system --gid 10001 stream_dr && useradd --system --uid 10001 --gid 10001 stream_dr && mkdir -p /data /var/cache/stream_dr

WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY stream_dr stream_dr
COPY service service

ARG EXTRAS=""
RUN python -m pip install -c constraints.txt ".$EXTRAS"

# Outside /build, so that what is warmed is what runs: the installed package. numba keys its cache by file, by the file's size
# and time (whole seconds, for image layers keep no more) and by CPU: a machine of another kind compiles at its first start.
# The time is made from all files' contents, because a kernel inlines other files' functions and a volume outlives the image.
WORKDIR /
RUN python -c "import os, pathlib, zlib, stream_dr; \
    files = sorted(pathlib.Path(stream_dr.__file__).parent.rglob('*.py')); \
    time = 1735689600 + zlib.crc32(b''.join(file.read_bytes() for file in files)) // 64; \
    [os.utime(file, (time, time)) for file in files]"
RUN python -m compileall -q "$(python -c 'import os, stream_dr; print(os.path.dirname(stream_dr.__file__))')"
RUN python -c "import stream_dr; stream_dr.warm_up()"

RUN chown -R 10001:10001 /data /var/cache/stream_dr

USER 10001:10001
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['STREAM_DR_PORT'] + '/readyz', timeout=4)"]
CMD ["python", "-m", "service"]
