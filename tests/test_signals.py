import signal
import threading

import pytest

from plmcl.signals import hold_signals


@pytest.fixture(autouse=True)
def _handlers_are_put_back():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def ends_with_143(signum, frame):
    raise SystemExit(143)


@pytest.mark.parametrize(
    ("number", "ending"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_acts_after_the_body_and_not_within_it(number, ending):
    signal.signal(signal.SIGTERM, ends_with_143)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    done = []

    def body():
        with hold_signals():
            signal.raise_signal(number)
            done.append("the rest of the body")

    with pytest.raises(ending):
        body()
    assert done
    assert signal.getsignal(signal.SIGTERM) is ends_with_143
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_signal_nothing_happens_and_an_error_goes_through():
    signal.signal(signal.SIGTERM, ends_with_143)
    with pytest.raises(ValueError, match="of the body"), hold_signals():
        raise ValueError("of the body")
    assert signal.getsignal(signal.SIGTERM) is ends_with_143


def test_a_signal_that_comes_twice_acts_at_once():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    done = []

    def body():
        with hold_signals():
            signal.raise_signal(signal.SIGINT)
            done.append("after the first")
            signal.raise_signal(signal.SIGINT)
            done.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        body()
    assert done == ["after the first"]


def test_another_thread_changes_no_handler():
    signal.signal(signal.SIGTERM, ends_with_143)
    seen = []

    def work():
        with hold_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [ends_with_143]
