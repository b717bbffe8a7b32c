# shellcheck shell=bash
# Sourced by bin/demo and bin/test: makes the project's own Python environment and keeps it up to date.
#
# The environment is a folder, .venv unless told otherwise. What this script knows about it lies in .venv/.ds-accum:
#   root                  the clone the environment was made for
#   package, torch, ...   one stamp a part: what it was installed from; what is still true is not done again
#   unfinished            the process that is setting it up; left behind by one that was interrupted: it starts over
#   running/              the processes that use it now; when there are none, a lock in the build folder is stale
#
# Runs on bash 3.2 (macOS) and newer.

DS_ACCUM_TORCH=${DS_ACCUM_TORCH:-torch==2.13.0}
default_deepspeed=deepspeed==0.19.8
DS_ACCUM_DEEPSPEED=${DS_ACCUM_DEEPSPEED:-$default_deepspeed}

export PIP_DISABLE_PIP_VERSION_CHECK=1
export PIP_NO_INPUT=1
# Without this, pip before 25.3 makes editable installs that don't see configs/ as ds_accum.configs.
export PIP_USE_PEP517=1

variables_help() {
  cat <<HELP
variables:
  DS_ACCUM_PYTHON       the Python to make the environment with (default: the first of python3, python that is 3.10 or newer)
  DS_ACCUM_ENVIRONMENT  the folder to make it in (default: .venv)
HELP
}

bold='' plain=''
if [ -t 1 ]; then
  bold=$(printf '\033[1m') plain=$(printf '\033[0m')
fi

section() { # title
  printf '\n%s== %s%s\n' "$bold" "$1" "$plain"
}

fail() { # message...
  printf '%s: %s\n' "$0" "$*" >&2
  exit 1
}

# ---- which Python, which folder

is_usable_python() { # command
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

find_python() { # -> $python
  local candidate
  if [ -n "${DS_ACCUM_PYTHON:-}" ]; then
    python=$DS_ACCUM_PYTHON
    return
  fi
  for candidate in python3 python python3.14 python3.13 python3.12 python3.11 python3.10; do
    if is_usable_python "$candidate"; then
      python=$candidate
      return
    fi
  done
  fail "no Python 3.10 or newer on PATH; set DS_ACCUM_PYTHON to one"
}

identity_of_python() { # command
  "$1" -c 'import os, sys; print(sys.version.split()[0], os.path.realpath(sys.base_prefix))' 2>/dev/null
}

select_environment() { # folder
  environment=$1
  case $environment in /*) ;; *) environment=$PWD/$environment ;; esac
  state=$environment/.ds-accum
}

# ---- set-up

parts_begun=''

step() { # label, command...: runs the command quietly; if it fails, shows the end of what it said
  local label=$1 started=$SECONDS
  shift
  printf '  %s ... ' "$label"
  if "$@" >"$state/step.log" 2>&1; then
    printf '%s s\n' $((SECONDS - started))
  else
    printf 'failed\n\n'
    # What a part left behind is in order when it failed by itself: the next run goes on from here.
    [ -z "$parts_begun" ] || rm -f "$state/unfinished"
    tail -n 40 "$state/step.log" >&2
    printf '\n' >&2
    fail "set-up failed: $label (all of its output: $state/step.log)"
  fi
}

create_virtual_environment() {
  "$python" -m venv "$environment" && return
  # Some distributions leave out the pip that venv would copy; the Python's own pip can install one into it.
  "$python" -m venv --without-pip "$environment" &&
    "$python" -m pip --python "$environment/bin/python" install pip
}

pip_install() { # arguments of pip install...
  "$environment/bin/python" -m pip install "$@"
}

compile_operators() {
  # ninja, which torch compiles with, is found through PATH. Always the same one: two releases undo each other's work.
  PATH="$environment/bin:$PATH" "$environment/bin/python" - <<'PYTHON'
from deepspeed.accelerator import get_accelerator

for name in ("ShareMemComm", "FusedAdam", "CPUAdam", "CPUAdagrad", "CPULion"):
    builder = get_accelerator().create_op_builder(f"{name}Builder")
    # Older releases have a builder on the CPU for what they can't build there, and call it compatible.
    if builder is not None and type(builder).__name__ != "NotImplementedBuilder" and builder.is_compatible():
        builder.load()
PYTHON
}

# What each part of an environment depends on; a part is installed again when its stamp says something else.
stamp_of() { # part
  local metadata
  metadata=$(cat setup.py setup.cfg | cksum)
  case $1 in
    package | report) echo "$metadata" ;;
    torch) echo "$DS_ACCUM_TORCH" ;;
    deepspeed | operators) echo "$DS_ACCUM_TORCH, $DS_ACCUM_DEEPSPEED" ;;
    tools) echo "$DS_ACCUM_TORCH, $DS_ACCUM_DEEPSPEED, $metadata" ;;
  esac
}

is_current() { # part...
  local part
  for part in "$@"; do
    [ "$(cat "$state/$part" 2>/dev/null)" = "$(stamp_of "$part")" ] || return 1
  done
}

part() { # part, label, command...: runs the step unless the part is there already
  local name=$1
  shift
  parts_begun=yes
  if ! is_current "$name"; then
    rm -f "$state/$name"
    step "$@"
    stamp_of "$name" >"$state/$name"
  fi
}

must_be_made_again() { # says why
  if [ -f "$state/unfinished" ]; then
    local owner
    owner=$(cat "$state/unfinished")
    if [ -n "$owner" ] && kill -0 "$owner" 2>/dev/null; then
      fail "process $owner is setting up $environment; wait for it (or, if it is something else, remove $state/unfinished)"
    fi
    echo "  the last set-up did not finish: starting over"
  elif [ "$(cat "$state/root" 2>/dev/null)" != "$PWD" ]; then
    echo "  the environment was made for another folder: starting over"
  elif ! is_usable_python "$environment/bin/python"; then
    echo "  the Python it was made with is gone: starting over"
  elif [ -n "${DS_ACCUM_PYTHON:-}" ] &&
    [ "$(identity_of_python "$DS_ACCUM_PYTHON")" != "$(identity_of_python "$environment/bin/python")" ]; then
    echo "  DS_ACCUM_PYTHON is another Python than it was made with: starting over"
  else
    return 1
  fi
}

ensure_environment() { # profile: lint (no torch), engine (what trains) or full (every tool of the tests, too)
  local parts='package'
  [ "$1" != engine ] || parts='package torch deepspeed report'
  [ "$1" != full ] || parts='package torch deepspeed tools operators'
  section "environment: $environment"
  if [ -n "${DS_ACCUM_PYTHON:-}" ] && ! is_usable_python "$DS_ACCUM_PYTHON"; then
    fail "DS_ACCUM_PYTHON=$DS_ACCUM_PYTHON does not run, or is older than Python 3.10"
  fi
  if [ -d "$environment" ] && [ ! -d "$state" ] && [ -n "$(ls -A "$environment")" ]; then
    fail "$environment was not made by this script, so it is left alone; remove it, or set DS_ACCUM_ENVIRONMENT to another folder"
  fi
  if [ -d "$state" ] && must_be_made_again; then
    rm -rf "$environment"
  fi
  # shellcheck disable=SC2086
  if is_current $parts; then
    register_use
    echo "  ready"
    return
  fi

  mkdir -p "$state"
  echo $$ >"$state/unfinished"
  echo "$PWD" >"$state/root"
  if [ ! -x "$environment/bin/python" ]; then
    find_python
    step "an empty environment, from Python $("$python" -c 'import sys; print(sys.version.split()[0])')" create_virtual_environment
  fi
  register_use
  if [ "$1" != lint ]; then
    # torch comes first: left to the others' requirements, pip would take whichever build is the newest.
    # Unquoted on purpose: the variable may hold further arguments of pip.
    # shellcheck disable=SC2086
    part torch "$DS_ACCUM_TORCH" pip_install $DS_ACCUM_TORCH
    part deepspeed "$DS_ACCUM_DEEPSPEED" pip_install "$DS_ACCUM_DEEPSPEED" ninja
  fi
  if [ "$1" = full ]; then
    part tools "ds-accum with its development tools" pip_install --editable '.[dev,huggingface]'
    stamp_of package >"$state/package"
    part operators "DeepSpeed's operators, compiled for this CPU (minutes, once)" compile_operators
  else
    part package "ds-accum" pip_install --editable .
    [ "$1" != engine ] || part report "what pages are drawn with" pip_install --editable '.[report]'
  fi
  rm -f "$state/unfinished"
}

# ---- use

engine_on_cpu() { # what every process that imports DeepSpeed needs to see
  export DS_ACCELERATOR=${DS_ACCELERATOR:-cpu}
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
  # A build folder of our own, named after what is compiled against what: nobody else's build is waited for or reused.
  TORCH_EXTENSIONS_DIR=$environment/torch-extensions/$(printf '%s %s' "$DS_ACCUM_TORCH" "$DS_ACCUM_DEEPSPEED" | cksum | tr ' ' '-')
  export TORCH_EXTENSIONS_DIR
}

register_use() {
  local entry alone=yes
  mkdir -p "$state/running"
  for entry in "$state"/running/*; do
    [ -e "$entry" ] || continue
    [ "${entry##*/}" != $$ ] || continue
    if kill -0 "${entry##*/}" 2>/dev/null; then
      alone=no
    else
      rm -f "$entry"
    fi
  done
  : >"$state/running/$$"
  trap 'rm -f "$state/running/$$"' EXIT
  # A build that was killed leaves a lock on which every later start would wait for ever.
  if [ "$alone" = yes ] && [ -d "${TORCH_EXTENSIONS_DIR:-}" ]; then
    find "$TORCH_EXTENSIONS_DIR" -name lock -type f -exec rm -f {} +
  fi
}
