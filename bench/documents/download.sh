#!/usr/bin/env bash
# Downloads the corpus of `bench documents` into a folder, by the names of packages: download.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/files" "$1/packages"
target=$(cd "$1" && pwd)

# Unpacks one package into packages/REGISTRY-NAME, unless it is there.
unpack() {
    local registry=$1 name=$2 folder=$target/packages/$1-$2
    [ -e "$folder/.complete" ] && return
    rm -rf "$folder"
    mkdir -p "$folder"
    case $registry in
        debian) (cd "$folder" && apt-get download -qq "$name" 2>/dev/null && dpkg-deb -x ./*.deb . && rm ./*.deb) ;;
        pypi) (cd "$folder" && pip download -q --no-deps --no-binary :all: "$name" \
            && for file in *.tar.gz; do tar xzf "$file"; done) ;;
        npm) (cd "$folder" && npm pack --silent "$name" >/dev/null && for file in *.tgz; do tar xzf "$file"; done) ;;
    esac
    touch "$folder/.complete"
}

while read -r registry name pattern; do
    case $registry in '' | '#') continue ;; esac
    case $registry in '#'*) continue ;; esac
    if ! unpack "$registry" "$name"; then
        echo "missing: $registry $name" >&2
        continue
    fi
    folder=$target/packages/$registry-$name
    # Files with the same name in one package are the same document in most cases. `head` would end `sort` with SIGPIPE,
    # and with it this script.
    find "$folder" -type f \( -name "$pattern" -o -name "$pattern.gz" \) -size +1c | sort | sed -n '1,12p' | while read -r file; do
        copy=$target/files/$name--$(basename "${file%.gz}" | tr ' ' '_')
        case $file in
            *.gz) gzip -dc "$file" >"$copy" ;;
            *) cp "$file" "$copy" ;;
        esac
    done
done <"$here/corpus.txt"
find "$target/files" -type f | wc -l
