"""The agent on a host: its ledger, its journal, its builds, its guests."""
