#!/bin/sh
# Builds the Dockerfile without a daemon, and starts, asks and stops the container: buildah with --isolation chroot, on a
# stand-in for python:3.11-slim that mmdebstrap makes (Debian 12 has Python 3.11). As root; needs buildah and mmdebstrap, and
# takes some seven minutes. What is given goes to `buildah build`, such as -v /etc/pip.conf:/etc/pip.conf:ro.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
store="buildah --root $scratch/root --runroot $scratch/runroot"
trap 'rm -rf "$scratch"' EXIT

echo "the base: Debian with Python 3.11"
mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv,python-is-python3 \
    bookworm "$scratch/base.tar"
base=$($store from scratch)
$store add -q "$base" "$scratch/base.tar" /
$store run "$base" -- sh -c 'rm -f /usr/lib/python3*/EXTERNALLY-MANAGED'  # the base image has none
$store commit -q --rm "$base" docker.io/library/python:3.11-slim

echo "the image"
$store build --pull=never -t stream_dr-checked "$@" "$top"

echo "the container"
container=$($store from --pull=never --ulimit nofile=8192:8192 stream_dr-checked)  # the service asks for so many
$store run -e STREAM_DR_HOST=127.0.0.1 -e STREAM_DR_PORT="$(shuf -i 20000-29999 -n 1)" \
    -v "$top/tests/image_check.py:/image_check.py:ro" "$container" -- sh -c '
        python -m service & service=$!
        python /image_check.py "http://127.0.0.1:$STREAM_DR_PORT" || { kill -KILL $service; exit 1; }
        kill -TERM $service
        wait $service'
echo "the image builds, starts, learns, answers and stops"
