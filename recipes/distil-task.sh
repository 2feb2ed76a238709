#!/bin/sh
# From an encoder to a small model of a task, as TinyBERT does it (Jiao et al. 2020): the encoder becomes a teacher
# of the task; a small student learns the encoder's layers from prepared data; then it learns the teacher's layers and
# outputs. The report compares it with the teacher, with the same student from the labels alone, and with the teacher's
# layers that learn its outputs alone.
#   ENCODER=runs/pretrain DATA=data TRAIN=train.tsv TEST=test.tsv UNLABELLED=texts.txt \
#       sh recipes/distil-task.sh runs/small
# DATA is what the encoder was pretrained on, or what this line makes of any text; no row of test is among it:
#   brimful prepare TEXT --out DATA --tokenizer ENCODER
# The same line continues after a kill: what is finished is kept.
set -eu
OUT=$1
LAYERS=${LAYERS:-2}
. "$(dirname "$0")/step.sh"

step teacher finetune --encoder "$ENCODER" --train "$TRAIN" --test "$TEST"

step general distil-encoder --teacher "$ENCODER" --data "$DATA" --student-layers "$LAYERS" \
    --layers.epochs "${LAYER_EPOCHS:-3}"

# Copies of the texts in which some words are others: the article's third part. What is written has its name only
# when it is complete.
MORE=$OUT/augmented.${TRAIN##*.}
[ -f "$MORE" ] || brimful augment --encoder "$ENCODER" --input "$TRAIN" --output "$MORE" --copies "${COPIES:-20}"

step student distil --teacher "$OUT/teacher" --student "$OUT/general" --train "$MORE" --test "$TEST" \
    --unlabelled "$UNLABELLED" --layers.epochs "${LAYER_EPOCHS:-3}" --logits.epochs "${OUTPUT_EPOCHS:-3}"
step simple distil --teacher "$OUT/teacher" --student-layers "$LAYERS" --train "$MORE" --test "$TEST" \
    --unlabelled "$UNLABELLED" --logits.epochs "${OUTPUT_EPOCHS:-3}"
step labels finetune --encoder "$OUT/general" --train "$TRAIN" --test "$TEST" --ladder none
brimful report "$OUT/teacher" "$OUT/student" "$OUT/simple" "$OUT/labels" --out "$OUT/report.html"
