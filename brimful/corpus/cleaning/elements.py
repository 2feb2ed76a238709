"""The names of elements: HTML's, obsolete ones too, and others that are found in crawled text."""

import re


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BLOCKS = _names("""
    address article aside blockquote body br caption center dd details div dl dt fieldset figcaption
    figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html li listing main marquee
    nav ol option p plaintext poem pre section summary table tbody td tfoot th thead title tr ul xmp
""")
"""What begins a line."""

CLEAR = _names("""
    abbr acronym applet article aside audio basefont bdi bdo bgsound big blink blockquote body br
    canvas caption center colgroup dd del div dl dt em embed fieldset figcaption figure font
    frameset h1 h2 h3 h4 h5 h6 head hgroup hr html iframe img includeonly ins kbd li listing marquee
    math meta multicol nav nobr noembed noframes noinclude noscript nowiki ol onlyinclude p
    plaintext pre rb rp rt rtc ruby samp script section small spacer span strike strong style sub
    sup svg table tbody td textarea tfoot th thead tr tt ul video wbr xml xmp
""")
"""Names that are hardly ever anything else."""

LETTERS = _names("a b i q s u")

WORDS = _names("""
    address area base button cite code col command content data details dfn dialog dir element
    filter footer form frame gallery header ilayer image input isindex keygen label layer legend
    link main map menu menuitem meter nextid object optgroup option output param picture poem portal
    progress rbc ref references search select shadow slot source summary template time title track
    var
""")
"""Words and abbreviations that stand in angle brackets for other things, too."""

VOID = _names("area base basefont br col embed frame hr img input link meta param source spacer wbr")
"""What has no end tag."""

CELLS = _names("tr td th tbody thead tfoot caption colgroup col")
"""What only a table lays out."""

HIDDEN = _names("""
    audio canvas footer iframe nav noembed noframes noscript object option script select style template
    textarea video
""")
"""What a page's text leaves out, with its content."""

KNOWN = CLEAR | LETTERS | WORDS

FOREIGN = re.compile(
    r"(?:o|v|w|x|m|w10|st\d|u\d|mml|svg|html|fb|mso|wps|skype):[a-z]|(?:amp|mip|mp|wx|uni)-[a-z]"
)
"""Elements of others: what Word and Outlook write into pages, and usual ones of mobile pages."""
