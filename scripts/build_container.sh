#!/usr/bin/env bash
# Build an image where no Docker engine runs, run its commands inside, and say which checks were not possible.
#
#   scripts/build_container.sh [cpu|gpu]
#
# Needs buildah (apt install buildah), and debootstrap for a base image of its own. Variables:
#   BASE_IMAGE  image of buildah's storage to build on; without one, Debian is bootstrapped from its packages
#   RELEASE     release of Debian to bootstrap (bookworm)
#   OUT         folder for logs and for the files that the image leaves in /data (out/container)
#   TESTS       tests that pytest runs in the image, relative to the checkout (tests: all, 20 minutes on two busy cores)
# This machine's certificates and pip configuration are mounted while building, where there are any, and never copied.
#
# shellcheck disable=SC2317,SC2329 # the functions are called by `step`, by name
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-cpu}
release=${RELEASE:-bookworm}
out=${OUT:-out/container}
tests=${TESTS:-tests}
image=localhost/spmark:$target
base=${BASE_IMAGE:-localhost/spmark-base:$release}
failed=0

usage() {
  echo "expected cpu or gpu, found '$target': scripts/build_container.sh [cpu|gpu]" >&2
  exit 2
}
need() {
  command -v "$1" >/dev/null || {
    echo "expected $1 on the path, found none: apt install $1" >&2
    exit 1
  }
}
[ "$target" = cpu ] || [ "$target" = gpu ] || usage
need buildah
need git
mkdir -p "$out"
out=$(cd "$out" && pwd)

# Everything runs by chroot: no daemon, no user namespace, no overlay mount inside a container is asked for.
export BUILDAH_ISOLATION=chroot
# Debian's ca-certificates writes into its own folders while the image is built, so that the machine's certificates are
# mounted elsewhere, and pip is told where.
mounts=()
trust=$(mktemp -d)
trap 'rm -rf "$trust"' EXIT
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
  cp -L /etc/ssl/certs/ca-certificates.crt "$trust/ca.crt"
  printf '[global]\ncert = /run/trust/ca.crt\n' >"$trust/pip.conf"
  [ ! -e /etc/pip.conf ] || sed -E '/^ *(\[global\]|cert *=)/d' /etc/pip.conf >>"$trust/pip.conf"
  chmod -R a+rX "$trust"
  mounts=(--volume "$trust:/run/trust:ro" --volume "$trust/pip.conf:/etc/pip.conf:ro")
fi

step() {
  local name=$1 log=$out/$1.log start=$SECONDS
  shift
  if "$@" >"$log" 2>&1; then
    printf 'ok      %-22s %4d s\n' "$name" $((SECONDS - start))
  else
    printf 'FAILED  %-22s %4d s  %s\n' "$name" $((SECONDS - start)) "$log"
    tail -n 15 "$log" | sed 's/^/          /'
    failed=1
    return 1
  fi
}

bootstrap() {
  need debootstrap
  local root container
  root=$(mktemp -d)
  debootstrap --variant=minbase "$release" "$root" && tar -C "$root" -cf "$root.tar" . && rm -rf "$root"
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$root.tar" /
  buildah config --cmd /bin/sh "$container"
  buildah commit --quiet --rm "$container" "$base"
  rm -f "$root.tar"
}

commit() {
  local dirty=""
  [ -z "$(git status --porcelain --untracked-files=no)" ] || dirty=+
  echo "$(git rev-parse HEAD)$dirty"
}

build() {
  buildah build --layers --pull-never --format docker "${mounts[@]}" --build-arg "BASE_IMAGE=$base" \
    --build-arg "COMMIT=$commit" --target "$1" --tag "$2" .
}

# Do as `docker run IMAGE ARGUMENTS`: the image's entry point, user and folder, and the arguments after the entry point.
run() {
  local of=$1 container code=0 entry
  shift
  read -ra entry < <(buildah inspect --type image --format '{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}' "$of")
  container=$(buildah from --pull-never "$of")
  buildah run --volume "$out/data:/data" "$container" -- "${entry[@]}" "$@" || code=$?
  buildah rm "$container" >/dev/null
  return "$code"
}

refuses() {
  local code=0
  run "$image" reproduce all --budget 1m || code=$?
  echo "exit code $code"
  [ "$code" -eq 3 ] || [ "$code" -eq 0 ]
}

facts() {
  local said container
  container=$(buildah from --pull-never "$image")
  # shellcheck disable=SC2016 # expanded inside
  said=$(buildah run "$container" -- sh -c \
    'id -u; echo "$SPMARK_COMMIT"; test -w /opt/spmark || echo sealed; command -v pytest || echo bare')
  buildah rm "$container" >/dev/null
  echo "$said"
  [ "$said" = "$(printf '%s\n' 10001 "$commit" sealed bare)" ] || return 1
  buildah inspect --type image --format '{{index .OCIv1.Config.Labels "org.opencontainers.image.revision"}}' "$image" |
    grep -qxF "$commit"
}

provenance() {
  grep -F "\"commit\":\"$commit\"" "$out"/data/out/quickstart/results/*/*/environments.jsonl
  test -s "$out/data/out/quickstart/index.html"
}

# The last line of pytest alone: below it, buildah says that a command failed.
counts() {
  grep -E ' in [0-9.]+s( |$)' "$out/tests.log" | tail -n 1 | sed 's/^/        /' || true
}

# Count skipped tests by what the image lacks; other reasons, such as an operator without implementation, are in the log.
skipped() {
  sed -nE 's/^SKIPPED \[([0-9]+)\] [^ ]+ (.*(not installed|needs|NVIDIA driver|SPMARK_MIRROR).*)$/\1\t\2/p' "$out/tests.log" |
    awk -F '\t' '{ n[$2] += $1 } END { for (why in n) printf "  %d tests in the image: %s\n", n[why], why }' | sort -rn
}

commit=$(commit)
rm -rf "$out/data"
install -d -m 1777 "$out/data"
echo "target $target at $commit on $base"
if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
  [ -z "${BASE_IMAGE:-}" ] || { echo "expected the image $base in buildah's storage, found none" >&2; exit 1; }
  step bootstrap bootstrap || exit 1
fi
step build build "$target" "$image" || exit 1
step facts facts || true
step doctor run "$image" doctor || true
step quickstart run "$image" quickstart || true
step provenance provenance || true
step reproduce refuses || true
if [ "$target" = cpu ]; then
  read -ra words <<<"$tests"
  step build-test build test "$image-test" || exit 1
  step tests run "$image-test" -q -n "$(nproc)" --dist loadfile "${words[@]/#//src/}" || true
  counts
fi

echo "not checked here:"
[ "$base" = "${BASE_IMAGE:-}" ] || echo "  the default bases of the Dockerfile: they come from a registry, and $base stood in for them"
echo "  a Docker engine: buildah built and ran it, in a chroot that shares network and process ids with this machine"
[ -e /proc/driver/nvidia/version ] || echo "  a GPU: no NVIDIA driver here, so nothing ran on one and --gpus was not used"
[ "$target" = gpu ] || echo "  the target gpu: say scripts/build_container.sh gpu"
if [ "$target" = cpu ]; then
  skipped
else
  echo "  the test suite in the image: it is an image on top of the target cpu"
fi
exit "$failed"
