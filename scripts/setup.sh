# Installs those packages of scripts/apt-packages.txt that are missing. Sourced by demo.sh and
# test.sh, in the repository root.

# setup_packages FILE: a package a line.
setup_packages() {
  local list=$1 installed missing
  installed=$(xargs dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' \
    <"$list" 2>/dev/null | sed -n 's/^ii *//p') || true  # not all are known
  missing=$(grep -vxF "$installed" "$list" | xargs) || true  # none left
  [ -n "$missing" ] || return 0

  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  echo "installing: $missing"
  # shellcheck disable=SC2086  # one word per package
  if ! { "${as_root[@]}" apt-get -q update &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get -q install -y --no-install-recommends $missing; }; then
    echo "cannot install the missing packages: $missing" >&2
    exit 2
  fi
}

setup_packages scripts/apt-packages.txt
