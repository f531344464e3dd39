#!/usr/bin/env bash
# A plugin with one tool, `sys_info`: what this machine is. It needs Bash and the usual commands.

describe() {
    printf '%s\n' '{"name":"sys_info","description":"Tell what this machine is.","parameters":{"type":"object","properties":{"topic":{"type":"string","enum":["os","disk","memory","all"],"description":"What to tell of","default":"all"}}}}'
}

# Prints its input as the inside of a JSON string.
escaped() {
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' | tr -d '\000-\010\013-\037' | sed -e ':a' -e 'N' -e '$!ba' -e 's/\n/\\n/g'
}

tell() {
    case "$1" in
        os) uname -srm ;;
        disk) df -Pk . | awk 'NR == 2 { printf "%d MB of %d MB are free\n", $4 / 1024, $2 / 1024 }' ;;
        memory) awk '/MemAvailable|MemTotal/ { printf "%s %d MB\n", $1, $2 / 1024 }' /proc/meminfo ;;
        *) tell os; tell disk; tell memory ;;
    esac
}

while IFS= read -r line; do
    case "$line" in
        *'"type":"describe"'*) describe ;;
        *'"type":"call"'*)
            topic=$(printf '%s' "$line" | sed -n 's/.*"topic":"\([a-z]*\)".*/\1/p')
            printf '{"content":[{"type":"text","text":"%s"}],"error":false}\n' "$(tell "$topic" | escaped)"
            ;;
    esac
done
