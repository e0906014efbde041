import base64

import pytest
from browser import CHROMIUM, Browser
from data import image_bytes as made
from running_service import Running, files, picture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs Debian's chromium: apt-get install chromium"
    ),
]

ROWS = """[...document.querySelectorAll("figure")].map((figure) => ({
  name: figure.querySelector("figcaption").textContent,
  error: figure.querySelector(".error")?.textContent ?? null,
  width: figure.querySelector("img").naturalWidth,
  rows: [...figure.querySelectorAll("tbody tr")].map((row) => ({
    label: row.cells[0].textContent, score: row.cells[2].textContent,
    threshold: row.cells[3].textContent, given: row.cells[4].textContent,
    bar: row.querySelector("i").getBoundingClientRect().width
      / row.querySelector(".bar").clientWidth,
  })),
}))"""
DROP = """(() => {
  const bytes = Uint8Array.from(atob("%s"), (character) => character.charCodeAt(0));
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
  document.querySelector("#drop").dispatchEvent(
    new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true }));
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


def results(browser, status):
    browser.wait_for(f"document.querySelector('#status').textContent.startsWith({status!r})")
    browser.wait_for("[...document.querySelectorAll('img')].every((image) => image.complete)")
    return browser.run(ROWS)


def test_a_person_who_drops_a_photo_sees_its_labels(production, tmp_path, browser):
    drawing, page = tmp_path / "drawing <b>.png", tmp_path / "page.jpg"
    drawing.write_bytes(made.png(made.drawn(4)))
    page.write_text("<html>")
    token = "t0ken"
    with Running(production / "v0001/model.onnx", env={"PLMCL_SERVE_TOKEN": token}) as service:
        browser.open(f"{service.url}/")
        browser.choose("#files", drawing, page)
        assert results(browser, "a bearer token is needed") == []
        # Not the answer's 401 alone: nothing else was said in the console.
        assert browser.complaints == [
            "Failed to load resource: the server responded with a status of 401 (Unauthorized)"
        ]
        browser.run(
            f"document.querySelector('#token').value = '{token}';"
            "document.querySelector('#token').dispatchEvent(new Event('change'))"
        )
        shown = results(browser, "model ")
        upload = files(("drawing <b>.png", drawing.read_bytes()), ("page.jpg", page.read_bytes()))
        head = {"Authorization": f"Bearer {token}"}
        expected = service.client.post("/predict", files=upload, headers=head).json()
        assert [figure["name"] for figure in shown] == ["drawing <b>.png", "page.jpg"]
        assert shown[0]["width"] == 48  # the picture itself is shown
        assert shown[1]["error"] == expected["predictions"][1]["error"]
        labels = sorted(expected["predictions"][0]["labels"], key=lambda tag: -tag["score"])
        assert len(labels) == 3
        for row, tag in zip(shown[0]["rows"], labels, strict=True):
            assert row["label"] == tag["label"]
            assert row["score"] == f"{tag['score']:.3f}"
            assert row["threshold"] == "0.250"
            assert row["given"] == ("yes" if tag["decision"] else "no")
            assert row["bar"] == pytest.approx(tag["score"], abs=0.02)
        browser.run(DROP % base64.b64encode(picture((255, 0, 0))).decode())
        browser.wait_for("document.querySelector('figcaption')?.textContent === 'dropped.png'")
        (dropped,) = results(browser, "model ")
        assert [row["given"] for row in dropped["rows"]] == ["yes", "no", "no"]
        assert dropped["rows"][0]["label"] == "red"
        # The policy had nothing to forbid, and the script has no error.
        assert len(browser.complaints) == 1
