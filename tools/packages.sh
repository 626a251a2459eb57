# Sourced by quickstart, run-tests and .ci/run: installs distribution packages that are absent, saying which.
# Debian 12, Ubuntu 24.04 and later. shellcheck shell=bash

die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }
say() { printf '== %s\n' "$*"; }

# What a build needs, and what the tests need on top.
build_packages=(g++ make cmake libfmt-dev libcli11-dev libedit-dev libxxhash-dev libzstd-dev libssl-dev libsqlite3-dev libtomlplusplus-dev)
test_packages=(ccache libgtest-dev python3-venv)
# Some tests skip without these, which not every distribution has as packages (Ubuntu's chromium is a snap).
optional_test_packages=(chromium)

installed() { [[ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" == 'install ok installed' ]]; }

as_root() {
  if [[ $EUID -eq 0 ]]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "must be root to run '$*', and there is no sudo here: run it as root, then start again"
  fi
}

apt_updated=
apt_update_once() {
  [[ -n $apt_updated ]] || { say 'apt-get update'; as_root apt-get update -qq; apt_updated=1; }
}

# Boost.JSON has its version in the package name: prints the newest from 1.81 on that apt offers, or that is installed. It brings the
# headers of all of Boost (libboost1.81-dev), of which Asio and Beast are used.
boost_json_package() {
  local all
  all=$({ dpkg-query -W -f='${db:Status-Status} ${Package}\n' 'libboost-json1.*-dev' 2>/dev/null | sed -n 's/^installed //p'; } || true)
  [[ -n $all ]] || all=$(apt-cache pkgnames libboost-json1. | grep -E '^libboost-json1\.[0-9]+-dev$' || true)
  sed -nE 's/^libboost-json1\.([0-9]+)-dev$/\1 &/p' <<<"$all" | awk '$1 >= 81' | sort -n | tail -1 | cut -d' ' -f2
}

# install_packages NAME...: installs those that are absent. Says what it will do before it does it.
install_packages() {
  command -v apt-get >/dev/null || die 'needs Debian 12, Ubuntu 24.04 or a relative of theirs: there is no apt-get here.
  Elsewhere install g++ 12 or newer, CMake 3.25, fmt 9, Boost.JSON 1.81, CLI11 2.1, libedit, xxHash 0.8, zstd 1.4, OpenSSL 3, SQLite 3.37, toml++ 3 (tests: GoogleTest, Python 3)
  by hand; then: cmake --preset release && cmake --build --preset release'
  local missing=() name
  for name in "$@"; do installed "$name" || missing+=("$name"); done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  say "will install from the distribution: ${missing[*]}"
  apt_update_once
  mkdir -p build
  say 'installing them; what apt-get says goes to build/packages.log'
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >build/packages.log 2>&1 </dev/null \
    || { tail -20 build/packages.log >&2; die "apt-get could not install: ${missing[*]} (all it said: build/packages.log)"; }
}

install_build_packages() {
  local boost=
  command -v apt-cache >/dev/null && boost=$(boost_json_package)
  if [[ -z $boost ]] && command -v apt-get >/dev/null; then  # a fresh machine has no package lists yet
    apt_update_once
    boost=$(boost_json_package)
    [[ -n $boost ]] || die 'this distribution has no libboost-json1.81-dev or newer (Debian 12 and Ubuntu 24.04 have)'
  fi
  install_packages "${build_packages[@]}" ${boost:+"$boost"}
}

install_test_packages() {
  local name offered=()
  install_packages "${test_packages[@]}"
  for name in "${optional_test_packages[@]}"; do
    installed "$name" && continue
    apt_update_once
    if apt-cache show "$name" >/dev/null 2>&1; then offered+=("$name"); else say "apt-get has no $name here: the tests that want it will skip"; fi
  done
  [[ ${#offered[@]} -eq 0 ]] || install_packages "${offered[@]}"
}

# Compilers want about 1 GB each at worst: fewer jobs than cores where memory is short.
build_jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  (( memory_gb >= 1 )) || memory_gb=1
  echo $(( cores < memory_gb ? cores : memory_gb ))
}
