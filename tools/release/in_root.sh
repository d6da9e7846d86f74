#!/usr/bin/env bash
# What pack.sh made, in a bare system, each installed into it as it came: .deb, tarball, wheel by pip and, where UV names a uv, by uv tool
# install and uvx; each runs the quickstart to its verified receipt. Seconds and bytes are printed. As root, who may mount.
# usage: in_root.sh ROOT RELEASE_FILES      ROOT: debootstrap --variant=minbase SUITE ROOT; it stays as it is
#        KINDS="deb tarball …"              those alone; WEIGHTS_INDEX: wanted, PIP_INDEX_URL of the program, which fetches the weights
set -euo pipefail
base=$(realpath "$1") files=$(realpath "$2")
read -ra kinds <<<"${KINDS:-deb tarball pip${UV:+ uv uvx}}"
[ -n "${MXT_IN_NAMESPACE:-}" ] || MXT_IN_NAMESPACE=1 exec unshare --mount --fork "$0" "$@"
work=$(mktemp -d)
mount -t tmpfs none "$work"
trap 'umount -l "$work"; rmdir "$work"' EXIT

# Each says how it gets ready (untimed: the system's own packages), installs, and starts the program.
ready() {
  case $1 in
    deb) echo "apt-get update -q" ;;
    tarball) echo : ;;
    pip) echo "apt-get update -q; apt-get install -y -q --no-install-recommends python3-venv" ;;
    uv | uvx) echo "apt-get update -q; apt-get install -y -q --no-install-recommends python3" ;;
  esac
}
installs() {
  case $1 in
    deb) echo "apt-get install -y -q /files/mindxtrain_*.deb" ;;
    tarball) echo "tar -xzf /files/mindxtrain-[0-9]*.tar.gz && mindxtrain-*/install.sh /usr/local" ;;
    pip) echo "python3 -m venv /venv && /venv/bin/pip install -q --no-index --find-links /files mindxtrain && ln -s /venv/bin/mindxtrain /usr/local/bin" ;;
    uv) echo "uv tool install -q --offline --find-links /files mindxtrain && ln -s ~/.local/bin/mindxtrain /usr/local/bin" ;;
    uvx) echo ":" ;;
  esac
}
failed=0
for kind in "${kinds[@]}"; do
  root=$work/$kind/root
  mkdir -p "$work/$kind"/{over,temp,root}
  mount -t overlay -o "lowerdir=$base,upperdir=$work/$kind/over,workdir=$work/$kind/temp" none "$root"
  mount -t proc none "$root/proc"
  cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
  mkdir -p "$root/files" && cp "$files"/* "$root/files/"
  [ "${kind#uv}" = "$kind" ] || install -m 755 "$UV" "$(dirname "$UV")"/uvx "$root/usr/local/bin/"
  program=mindxtrain
  [ "$kind" != uvx ] || program="uvx -q --offline --find-links /files mindxtrain"
  cat >"$root/trial.sh" <<TEXT
set -e
cd /root; export DEBIAN_FRONTEND=noninteractive
{ $(ready "$kind"); } >/ready.log 2>&1
begin=\$(date +%s)
{ $(installs "$kind"); } >/install.log 2>&1
installed=\$(date +%s)
$program run quickstart_cpu --out out >/run.log 2>&1
$program receipt out/manifest.json >/receipt.log 2>&1
echo "\$((installed - begin)) s to install, \$((\$(date +%s) - installed)) s to the receipt, \$(grep -o '^exact match.*' /run.log)"
TEXT
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 ${WEIGHTS_INDEX:+"PIP_INDEX_URL=$WEIGHTS_INDEX"} \
    chroot "$root" bash /trial.sh >"$work/said" 2>&1 && printf '%-8s %s\n' "$kind" "$(cat "$work/said")" || {
    failed=1
    printf '%-8s failed: %s\n' "$kind" "$(tail -q -n 2 "$work/said" "$root"/{ready,install,run,receipt}.log 2>/dev/null | tail -3)"
  }
  umount "$root/proc" "$root"
  rm -rf "${work:?}/$kind"
done
exit $failed
