#!/usr/bin/env bash
# Downloads the corpus of `bench documents` into a folder, by the names of packages: download.sh FOLDER
# Fails if a package cannot be downloaded or has none of its files: a smaller corpus would give other scores. Packages
# that are complete are not downloaded again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/packages"
target=$(cd "$1" && pwd)
# The folder gets its name when it is complete.
rm -rf "$target/files" "$target/files.incomplete"
mkdir "$target/files.incomplete"

# Downloads one package into the current folder and unpacks it. `set -e` has no effect in a function whose status is
# tested, so all commands are joined.
unpack() {
    case $1 in
        debian) apt-get -o APT::Sandbox::User=root download -qq "$2" && dpkg-deb -x ./*.deb . && rm ./*.deb ;;
        pypi) pip download -q --no-deps --no-binary :all: "$2" && tar xzf ./*.tar.gz ;;
        npm) npm pack --silent "$2" >npm.log && tar xzf ./*.tgz ;;
        *) echo "unknown registry: $1" >&2 && false ;;
    esac
}

missing=0
while read -r registry name pattern; do
    case $registry in '' | '#'*) continue ;; esac
    folder=$target/packages/$registry-$name
    if [ ! -e "$folder/.complete" ]; then
        rm -rf "$folder"
        mkdir -p "$folder"
        if ! (cd "$folder" && unpack "$registry" "$name" && touch .complete); then
            echo "missing: $registry $name" >&2
            missing=1
            continue
        fi
    fi
    # Files with the same name in one package are the same document in most cases. `head` would end `sort` with SIGPIPE,
    # and with it this script.
    find "$folder" -type f \( -name "$pattern" -o -name "$pattern.gz" \) -size +1c | sort | sed -n '1,12p' >"$target/found"
    if [ ! -s "$target/found" ]; then
        echo "no file \`$pattern\` in $registry $name" >&2
        missing=1
    fi
    while read -r file; do
        copy=$target/files.incomplete/$name--$(basename "${file%.gz}" | tr ' ' '_')
        case $file in
            *.gz) gzip -dc "$file" >"$copy" ;;
            *) cp "$file" "$copy" ;;
        esac
    done <"$target/found"
done <"$here/corpus.txt"
[ "$missing" = 0 ]
mv "$target/files.incomplete" "$target/files"
find "$target/files" -type f | wc -l
