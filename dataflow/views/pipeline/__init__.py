"""Pictures of a pipeline: a sketch of boxes and arrows, its layout, and its drawing as SVG, Mermaid and text."""
