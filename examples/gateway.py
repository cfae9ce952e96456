"""An agent on OpenAI's SDK remembers after one changed URL, and each answer can prove what the model was shown.

`keepworth serve --memory gateway.mem --upstream URL` is started here, as you would in a terminal of its own.
"""

import os
import subprocess

from openai import OpenAI

from keepworth import Client
from stand_in import endpoint

with endpoint() as (upstream, key, model):
    command = [
        "keepworth",
        "serve",
        "--memory",
        "gateway.mem",
        "--encoder",
        "hashing",
        "--upstream",
        upstream,
        "--port",
        "0",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OPENAI_API_KEY": key})
    try:
        url = token = ""
        for line in server.stdout or ():
            url = line.split()[0] if line.startswith("http") else url
            if line.startswith("token: "):
                token = line.split()[1]
                break
        agent = OpenAI(base_url=f"{url}/v1", api_key=token, default_headers={"X-Keepworth-User": "ana"})
        for said in ("I live in Oslo.", "In which city do I live?"):
            messages = [{"role": "user", "content": said}]
            answer = agent.chat.completions.with_raw_response.create(model=model, messages=messages)
        print("answer:", answer.parse().choices[0].message.content)
        memory = Client(url, token)
        receipt = memory.receipt(answer.headers["X-Keepworth-Episode"])
        memory.reward(answer.headers["X-Keepworth-Episode"], 1.0)  # a thumb up
        print("the model was shown:", receipt["text"])
    finally:
        server.terminate()
        server.wait(timeout=30)
