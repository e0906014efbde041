"""What a file can be: each has exactly one of these."""

STATUSES = {
    "ok": "can be used as it is",
    "converted": "can be used, and needed a conversion",
    "duplicate": "the same bytes as another file, which has its labels",
    "empty": "0 bytes",
    "not_an_image": "no image format that is known",
    "truncated": "cut off, or ends too early",
    "too_large": "more pixels or bytes than the limit",
    "animated": "more than one frame",
    "unsupported": "a kind of image that is not read",
    "unreadable": "damaged otherwise, or the system does not let us read it",
    "hidden": "hidden, or left behind by a system",
    "other_file": "the suffix is not an image's",
    "unreadable_name": "the name is not UTF-8",
    "outside_root": "a link that leads out of the folder",
    "link": "a link to a folder, or to nothing",
    "not_a_file": "a pipe, a socket or a device",
}
USABLE = ("ok", "converted")
# Of a delivered file that somebody asked to have removed: only its row is left.
FORGOTTEN = "forgotten"
