"""A loop of one's own around plain functions."""

from recloser_guard import CallDenied, RunHalted
from scene import SESSION, ended, guard, model, work


@guard.guarded()
def fetch_page(url):
    return work("fetch_page", {"url": url})


@guard.guarded()
def replanned(url):
    return work("replanned", {"url": url})


@guard.guarded()
def search(q):
    return work("search", {"q": q})


TOOLS = {"fetch_page": fetch_page, "replanned": replanned, "search": search}


def main():
    result = ""
    with guard.session(SESSION):
        while True:
            step = model.next(result)
            if step is None:
                return ended("finished", result)
            tool, arguments = step
            try:
                result = TOOLS[tool](**arguments)
            except RunHalted as halt:
                return ended("halted", halt.message_for_model)
            except CallDenied as refusal:
                result = refusal.message_for_model
            except RuntimeError as error:
                result = f"Error: {error}"


main()
