"""LangGraph's store in one file: a graph that notes what it is told, and another run that knows it."""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore

from keepworth import Memory
from keepworth.adapters.langgraph import as_langgraph_store
from stand_in import endpoint


class State(TypedDict):
    user: str
    said: str
    answer: str


def ask(url, key, model, notes, question):
    from openai import OpenAI

    system = "Answer from these notes, in one sentence:\n" + "\n".join(f"- {note}" for note in notes)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return OpenAI(base_url=url, api_key=key).chat.completions.create(model=model, messages=messages)


with endpoint() as (url, key, model), Memory("graph.mem", encoder="hashing") as memory:

    def helper(state: State, *, store: BaseStore):
        space = ("notes", state["user"])
        known = store.search(space, query=state["said"], limit=3)
        reply = ask(url, key, model, [each.value["text"] for each in known], state["said"])
        if not state["said"].endswith("?"):  # what is asked is no note
            store.put(space, state["said"], {"text": state["said"]})
        return {"answer": reply.choices[0].message.content}

    graph = StateGraph(State).add_node(helper).add_edge(START, "helper").add_edge("helper", END)
    app = graph.compile(store=as_langgraph_store(memory, fields=["text"]))
    app.invoke({"user": "ana", "said": "My desk is number 14."})
    done = app.invoke({"user": "ana", "said": "Which desk do I sit at?"})
    print("another user knows:", app.invoke({"user": "bo", "said": "Which desk do I sit at?"})["answer"])
    print("answer:", done["answer"])
