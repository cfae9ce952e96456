#!/bin/sh
# A memory behind HTTP, and curl: the same for every language. Needs: pip install ".[serve]", curl.
set -eu
export KEEPWORTH_API_KEY=kw_a_token_of_your_own_making
PORT=${PORT:-8765}
keepworth serve --memory curl.mem --encoder hashing --port "$PORT" >server.log 2>&1 &
server=$!
trap 'kill $server' EXIT

ask() {
    curl -sf "http://127.0.0.1:$PORT/v1/memory/$1" -H "Authorization: Bearer $KEEPWORTH_API_KEY" \
        -H 'Content-Type: application/json' -d "$2"
}
until curl -s -o server.health "http://127.0.0.1:$PORT/health"; do sleep 0.2; done

ask items '{"content": "Ana is allergic to peanuts", "user_id": "ana"}' >added.json
ask search '{"query": "what is Ana allergic to?", "user_id": "ana"}' >found.json
# The decision is what a reward is for: 1 if the search helped, 0 if not.
decision=$(sed 's/.*"decision": *"\([^"]*\)".*/\1/' found.json)
ask "rewards" "{\"target\": \"$decision\", \"value\": 1}" >rewarded.json
ask search '{"query": "what is Ana allergic to?", "user_id": "ana", "top_k": 1}' >again.json
echo "found: $(grep -o 'Ana is allergic to peanuts' again.json | head -n 1), rewards so far: $(grep -o '"credited": [0-9]*' again.json)"
