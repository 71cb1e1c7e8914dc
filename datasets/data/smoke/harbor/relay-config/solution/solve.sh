#!/bin/sh
set -eu
awk -v port="$RELAY_PORT" -v region="$RELAY_REGION" '
    /^\[/ { section = $0 }
    section == "[server]" && $1 == "port"        { $0 = "port = " port }
    section == "[server]" && $1 == "region"      { $0 = "region = " region }
    section == "[server]" && $1 == ";tls"        { sub(/^;/, "") }
    section == "[limits]" && $1 == "max_clients" { $0 = "max_clients = 250" }
    { print }
' /app/relay.conf > /app/relay.conf.new
mv /app/relay.conf.new /app/relay.conf
