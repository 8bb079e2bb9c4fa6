"""Runs a file as the one cell of a notebook, in a kernel of its own, and prints what the cell printed."""

import sys
import warnings
from pathlib import Path


def main(file: str) -> int:
    """The exit code: 1 where the cell failed."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(Path(file).read_text())])
    client = NotebookClient(notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": "."}})
    try:
        client.execute()
    except CellExecutionError as error:
        print(error, file=sys.stderr)
        return 1
    for output in notebook.cells[0].outputs:
        stream = sys.stderr if output.get("name") == "stderr" else sys.stdout
        print(output.get("text") or output.get("data", {}).get("text/plain", ""), file=stream)
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of nbclient and of asyncio, not of the block
    sys.exit(main(sys.argv[1]))
