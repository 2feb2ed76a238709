"""Text that another program decoded with a wrong charset is counted; what looks a little like it is not."""

from collections import Counter

import pytest

from brimful.corpus.reading.nonsense import WRONGLY_DECODED, count_nonsense, kind_of_issue

TEXTS = {
    "fr": "Le café était fermé, à l'évidence; “hélas”, dit l'élève.",
    "zh": "会议于上午九点召开，来自各区县的代表参加了会议。“你好”……他说。",
    "ru": "Вчера днём несколько десятков рабочих убирали снег с дороги.",
    "ja": "昨日の午後、現場では数十人の作業員が道路の雪を片付けていた。",
    "ar": "أمس بعد الظهر كان عشرات العمال يزيلون الثلج عن الطريق.",
}
# What text really has of these characters.
HONEST = [
    *TEXTS.values(),
    "Grüße, schöne »Spaß« und »Maß«; “CAFÉ”, IRMÃO, São Paulo, ÂME, RÔLE; £5, ½, 20 µm ± 2°, ¬a, naïve, 10 €",
    "木工用锛和凿。Ελλάδα שלום ไทย हिन्दी 한국어",
]


def kinds(text: str) -> set[str]:
    issues: Counter[str] = Counter()
    count_nonsense(text, issues)
    return {kind_of_issue(issue) for issue in issues}


@pytest.mark.parametrize("codec", ["cp1252", "latin-1", "cp1251", "gb18030"])
@pytest.mark.parametrize("name", ["fr", "zh", "ru", "ja"])
def test_utf8_read_as_another_charset(name: str, codec: str) -> None:
    if (name, codec) != ("ru", "gb18030"):  # which has none of the signs
        assert kinds(TEXTS[name].encode().decode(codec, "ignore")) == {WRONGLY_DECODED}


@pytest.mark.parametrize("text", [TEXTS["zh"].encode("gbk").decode("latin-1"), "价格是锟斤拷锟斤拷元"])
def test_gbk_read_as_latin_and_lost_characters(text: str) -> None:
    assert kinds(text) == {WRONGLY_DECODED}


def test_the_first_example_is_kept_and_all_are_counted() -> None:
    issues: Counter[str] = Counter()
    for text in ("un cafÃ© nÃ©", "nÃ©e, fÃªte"):
        count_nonsense(text, issues)
    assert issues == {f"{WRONGLY_DECODED} (such as un cafÃ© nÃ©)": 4}


def test_only_a_sample_is_looked_at() -> None:
    assert kinds("x" * 5000 + TEXTS["fr"].encode().decode("latin-1")) == set()


@pytest.mark.parametrize("text", HONEST)
def test_honest_text(text: str) -> None:
    assert not kinds(text)
