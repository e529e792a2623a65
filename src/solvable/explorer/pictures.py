"""What a view's picture and its program show besides its own curve: pinned curves, branches, logarithmic values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .views import Refused, View

MOST_PINS = 6


@dataclass(frozen=True)
class Shown:
    """A view as it is drawn; make it with `Shown.checked`."""

    view: View
    pins: tuple[View, ...] = ()
    logarithmic: bool = False

    @classmethod
    def checked(cls, body: Mapping[str, Any]) -> Shown:
        """Parse `view`, `pins` (the values of each pinned curve) and `logarithmic`.

        >>> curve = {"model": "perceptron", "x": {"field": "samples"}}
        >>> shown = Shown.checked({"view": curve, "pins": [{"penalty": 0.5}], "logarithmic": True})
        >>> shown.captions, shown.scales["test_error"]
        (['penalty 0.1', 'penalty 0.5'], 'log')
        """
        view, pins, logarithmic = View.checked(body.get("view")), body.get("pins", []), body.get("logarithmic", False)
        if not isinstance(pins, list) or not all(isinstance(p, dict) for p in pins) or len(pins) > MOST_PINS:
            raise Refused(f"pins must be a list of at most {MOST_PINS} objects {{name: value}}.", "pins")
        if not isinstance(logarithmic, bool):
            raise Refused("logarithmic must be true or false.", "logarithmic")
        if view.y is not None or not view.model.answers_at_once:
            pins = []  # not drawn in a plane, nor without a curve
        request = view.json()
        checked = [View.checked(request | {"values": values, "observables": None, "sizes": []}) for values in pins]
        # An observable that a pinned choice does not have is not drawn there.
        own = [tuple(n for n in view.observables if n in p.model.observables()) for p in checked]
        return cls(view, tuple(replace(p, observables=o) for p, o in zip(checked, own, strict=True)), logarithmic)

    @property
    def scales(self) -> dict[str, str]:
        """The scale of every axis, by name."""
        swept = {a.field: a.scale for a in self.view.axes}
        return swept | (dict.fromkeys(self.view.observables, "log") if self.logarithmic and not self.view.y else {})

    @property
    def captions(self) -> list[str]:
        """What distinguishes the view and its pinned curves, in words; no two are equal."""
        every = [v.changed for v in (self.view, *self.pins)]
        fields = type(self.view.model).fields()
        names = [n for n in fields if len({repr(one.get(n)) for one in every}) > 1]
        texts = []
        for one in every:
            values = {n: one.get(n, fields[n].default) for n in names}
            text = ", ".join(f"{n.replace('_', ' ')} {v:.4g}" if isinstance(v, float) else f"{n.replace('_', ' ')} {v}"
                             for n, v in values.items()) or "current"  # fmt: skip
            texts.append(text if text not in texts else f"{text} ({len(texts) + 1})")
        return texts

    def drawn_with(self, curve: Callable[[View], Any]) -> dict[str, Any]:
        """The options of the figure; `curve` gives the theory of a pinned view as a study."""
        captions = self.captions
        beside = {text: curve(pin) for text, pin in zip(captions[1:], self.pins, strict=True)}
        options: dict[str, Any] = {"scales": self.scales, "branches": self.view.branches, "beside": beside}
        return options | ({"caption": captions[0]} if beside else {})

    @property
    def declared_otherwise(self) -> dict[str, str]:
        """The scales that differ from the declared ones."""
        fields = type(self.view.model).fields()
        return {n: s for n, s in self.scales.items() if s != (fields[n].scale if n in fields else "linear")}
