"""What the Prometheus Operator takes, as far as the chart uses it: unknown keys are mistakes.

After its API reference, monitoring.coreos.com/v1.
"""

from __future__ import annotations

from typing import Any

import jsonschema

_TEXT = {"type": "string"}
_DURATION = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h))+$"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}


def _closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(required),
    }


def _listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


_KEY = _closed({"name": _TEXT, "key": _TEXT}, "key")
_RELABELING = _closed(
    {
        "action": {"enum": ["replace", "keep", "drop", "labeldrop", "labelkeep", "labelmap"]},
        "sourceLabels": _listed(_TEXT),
        "targetLabel": _TEXT,
        "regex": _TEXT,
        "replacement": _TEXT,
        "separator": _TEXT,
    }
)
_ENDPOINT = _closed(
    {
        "port": _TEXT,
        "path": {"type": "string", "pattern": "^/"},
        "scheme": {"enum": ["http", "https"]},
        "interval": _DURATION,
        "scrapeTimeout": _DURATION,
        "honorLabels": {"type": "boolean"},
        "tlsConfig": _closed({"ca": _closed({"secret": _KEY}), "serverName": _TEXT}),
        "basicAuth": _closed({"username": _KEY, "password": _KEY}),
        "relabelings": _listed(_RELABELING),
        "metricRelabelings": _listed(_RELABELING),
    },
    "port",
)
_SELECTOR = _closed({"matchLabels": _TEXTS}, "matchLabels")
_RULE = _closed(
    {
        "record": _TEXT,
        "alert": _TEXT,
        "expr": _TEXT,
        "for": _DURATION,
        "keep_firing_for": _DURATION,
        "labels": _TEXTS,
        "annotations": _TEXTS,
    },
    "expr",
)
_GROUP = _closed({"name": _TEXT, "interval": _DURATION, "rules": _listed(_RULE)}, "name", "rules")
_ATTACHED = _closed({"node": {"type": "boolean"}})
_SPECS = {
    "PodMonitor": {"selector": _SELECTOR, "podMetricsEndpoints": _listed(_ENDPOINT)},
    "ServiceMonitor": {"selector": _SELECTOR, "endpoints": _listed(_ENDPOINT)},
    "PrometheusRule": {"groups": _listed(_GROUP)},
}
# What a spec may lack.
_OPTIONAL = {kind: {"attachMetadata": _ATTACHED} for kind in ("PodMonitor", "ServiceMonitor")}


def validate(manifest: dict[str, Any]) -> None:
    """Raise ``jsonschema.ValidationError`` if the operator would refuse an object."""
    spec = _SPECS[manifest["kind"]]
    schema = _closed(
        {
            "apiVersion": {"const": "monitoring.coreos.com/v1"},
            "kind": _TEXT,
            "metadata": _closed({"name": _TEXT, "namespace": _TEXT, "labels": _TEXTS}, "name"),
            "spec": _closed(spec | _OPTIONAL.get(manifest["kind"], {}), *spec),
        },
        *("apiVersion", "kind", "metadata", "spec"),
    )
    jsonschema.validate(manifest, schema)
