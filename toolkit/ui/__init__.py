"""Pages for people: a run log in the browser."""

from toolkit.ui.viewer import serve_viewer, viewer_app

__all__ = ["serve_viewer", "viewer_app"]
