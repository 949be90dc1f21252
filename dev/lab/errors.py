"""What goes wrong in a lab is said in one kind of error, with its cause and the way out."""


class LabError(Exception):
    """A lab cannot be brought up, used or taken down; the text is for the person who asked for it."""
