#!/bin/sh
# A Chinese BERT of a domain, as a practitioner made one of financial news: crawled pages become clean text, jieba's
# words and the terms of a lexicon (names of companies, say, one a line) are masked whole, a general model is trained
# further on them, and both models are fine-tuned on the domain's labels, beside TF-IDF.
#   MODEL=bert-chinese PAGES=crawl GENERAL=wikipedia TERMS=terms.txt TRAIN=train.csv TEST=test.csv \
#       sh recipes/chinese-domain.sh runs/finance
# MODEL is a folder of a BERT in the form of Hugging Face, such as RUN/encoder. The same line continues after a kill:
# what is finished is kept. The recipe ran at toy size only.
set -eu
OUT=$1
. "$(dirname "$0")/step.sh"

# corpus NAME OPTIONS: prepare text into OUT/NAME, unless that is finished.
corpus() {
    folder=$OUT/$1
    shift
    [ -f "$folder/MANIFEST.json" ] || brimful prepare "$@" --out "$folder" --tokenizer "$MODEL"
}

corpus domain "$PAGES" --lexicon "$TERMS"
corpus general "$GENERAL"
step continued pretrain --config "$(dirname "$0")/pretrain-chinese-domain.yaml" --start-from "$MODEL" \
    --data "$OUT/domain:9" "$OUT/general:1" --trainer.steps "${STEPS:-12500}"
step before finetune --encoder "$MODEL" --train "$TRAIN" --test "$TEST" --seed ${SEEDS:-0 1 2}
step after finetune --encoder "$OUT/continued/encoder" --train "$TRAIN" --test "$TEST" --seed ${SEEDS:-0 1 2}
brimful report "$OUT/before" "$OUT/after" --out "$OUT/report.html"
