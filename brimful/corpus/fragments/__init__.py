"""A memory of fragments: tokens and words of texts, mostly looked up instead of computed.

Words come again and again, so most of a text has been tokenized before. This package cuts texts into
fragments, remembers what the tokenizer (or the Chinese segmenter) says of each, and asks it only about new
ones. The results equal the results of the tokenizer on the whole text. This is why:

1. A tokenizer is a chain: normalizer, pre-tokenizer, model, post-processor. The model sees one pre-token at
   a time, so a cut is safe where (a) the normalizer gives the same text on both sides as on the whole, and
   (b) the pre-tokenizer would end a pre-token there anyway, whatever stands further left and right.
2. The normalizers and pre-tokenizers that `cuts` knows by name look at a character and its direct
   neighbours, at nothing farther. So whether a cut is safe depends only on the two characters beside it.
   `memo` names kinds of characters by what they join (letters, numbers, symbols, Han characters, spaces), and
   its `SAFE_CUTS` holds the safe pairs.
3. Nobody writes the kinds down. `cuts` asks the tokenizer itself, for each code point that turns up, what
   it makes of it by itself, doubled, and between a letter, a digit, a comma and a Han character. A character
   whose answers fit no kind is UNSURE: no cut stands beside it. So a Unicode version that differs between
   Python and the tokenizer cannot matter, nor an odd rule of one tokenizer.
4. A pipeline with a part that `cuts` does not know (another regular expression, a replacement across
   spaces, added tokens, dropout, truncation) gets its texts whole: slower, and exact without an argument.
5. What precedes a fragment can still matter where a tokenizer marks the beginning of a text (byte-level BPE,
   SentencePiece). There the first fragment of a text is remembered apart from the same characters inside,
   and a fragment inside is asked about after a probe character that is cut off from it.
6. Runs of Han characters would be new every time. For WordPiece without continuation marks, which matches
   the longest piece from the left, `memo` does the same over the vocabulary's own pieces; any other run is
   a fragment.
7. A remembered fragment is compared character by character, never by its hash alone.
8. The memory is bounded. When it is full, new fragments are asked about each time and the memory starts
   afresh. The results do not depend on what is remembered.

tests/corpus/tokenize/test_encode.py compares 27 pipelines with their tokenizers on random Unicode text, on
full and on tiny memories.
"""
