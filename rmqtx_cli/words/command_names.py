"""The names of all commands and a line for each, by the sections of `rmqtx --help`."""

from __future__ import annotations

#: Each command with its line of `rmqtx --help`, by section, in the order of the page.
SECTIONS: dict[str, dict[str, str]] = {
    "Look": {
        "pending": "list the pending transactions, oldest first",
        "show": "show one transaction: timeline, evidence, advice",
        "audit": "list every transaction with state, flags and evidence",
        "diagnose": "name the causes of what is unusual, by release",
        "report": "write a page: what is the matter, why, and the evidence",
        "producers": "list connected producers and their pending transactions",
        "stores": "list stores: version, files, cursors, what can be trusted",
        "search": "find records by key, id, topic, property or body",
        "simulate": "predict the next rounds of the check, without a broker",
        "explain": "explain a state, flag, cause, finding, column or status",
    },
    "Verify and repair": {
        "verify": "find damage in a store, and what a start would cut off",
        "salvage": "build a clean store from damaged files or a disk image",
        "rebuild": "copy a store and rebuild its queues, index or checkpoint",
        "cursor": "set the check's cursors in a stopped broker's files",
        "undo": "undo a change of a store in place, or complete it",
    },
    "Settle": {
        "commit": "deliver the messages of transactions",
        "rollback": "end transactions without delivery",
        "discard": "roll transactions back and keep a copy of their messages",
        "resume": "have discarded or lost transactions checked again",
        "close": "end the checks of decided transactions",
        "redeliver": "deliver what was rolled back, discarded or lost wrongly",
        "plan": "write a plan for many transactions, for review",
        "triage": "ask about each pending transaction, write a plan",
        "apply": "carry out a plan, with a receipt for each transaction",
        "answer": "answer the broker's checks for a dead producer group",
        "hold": "keep brokers from discarding open transactions, for a time",
        "drain": "empty a broker before a planned stop",
        "release": "put back the settings of held and drained brokers",
        "holds": "list held and drained brokers, and what they have now",
        "receipts": "list actions: who, when, why; test whether they still hold",
    },
    "Watch": {
        "check": "print one line for Nagios, Prometheus or JSON",
        "watch": "show pending transactions live, on a full screen",
        "follow": "print each new or changed transaction while stores grow",
        "exporter": "serve metrics for Prometheus",
        "probe": "send test transactions through live brokers, time each step",
    },
    "Data": {
        "sql": "query transactions, records and causes in SQL",
        "schema": "list tables and columns, for a data catalogue too",
        "export": "write a table as files by topic and day",
        "table": "keep a table of verdicts up to date, with its history",
        "diff": "compare two stores, two audit files or two times",
        "reconcile": "compare transactions with the application's ledger",
        "decode": "print files of a store, structure by structure",
        "bundle": "pack a few transactions into a small store, to share them",
        "prove": "check a proof of verdicts on a copy of the store",
        "mcp": "serve an assistant: questions and plans, no acts",
        "case": "list all events of a case in one order",
    },
    "Installation": {
        "doctor": "test this installation, and the executors of Spark",
        "spark-archive": "pack the packages that Spark's executors need",
    },
}

#: The same without sections.
LINES: dict[str, str] = {name: line for commands in SECTIONS.values() for name, line in commands.items()}

#: What most people need, with the arguments that it takes.
MOST_USED: dict[str, str] = {
    "rmqtx pending STORE": "which transactions are pending, oldest first",
    "rmqtx show ID --store STORE": "what happened to one transaction, and why",
    "rmqtx audit STORE": "the state of every transaction",
    "rmqtx verify STORE": "whether the store is whole",
    "rmqtx check STORE": "one line for Nagios or Prometheus",
    "rmqtx commit ID -n HOST:PORT": "deliver one transaction on a live broker",
}
