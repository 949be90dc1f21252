"""The demo: what Drawbridge promises, played on a real control plane, shown live and checked."""
