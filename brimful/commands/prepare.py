"""The verb `brimful prepare`: raw text files -> a folder of tokenized, word-bounded shards."""

from pathlib import Path

from brimful.base.config import verb
from brimful.base.types import Values
from brimful.corpus.pipeline.config import PrepareConfig
from brimful.corpus.pipeline.preparing import prepare_corpus


@verb(PrepareConfig)
def prepare(config: PrepareConfig) -> Values:
    """Turn raw text files into a folder of tokenized shards.

    Finished work is kept. After a kill the same command continues; new files only add shards; a changed
    setting repeats only the work that depends on it.

    Returns:
        the counts of OUT/MANIFEST.json: documents, dropped by reason, tokens, words ...; the choices about
        the vocabulary, case, accents and Chinese (`decided`); seconds by stage.

    Raises:
        BrimfulError: there is nothing to read, or nothing is left after cleaning; the folder has another
            tokenizer; inputs have changed; the folder cannot be written, or another process works there.
    """
    try:
        return prepare_corpus(config)
    except KeyboardInterrupt as stopped:
        has_begun = Path(config.out).exists()  # an empty folder was removed with its lock
        stopped.add_note("the same command continues" if has_begun else "nothing was written")
        raise
