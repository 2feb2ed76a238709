# Read by the recipes of this folder: OUT is the folder of the whole recipe.

# step NAME VERB OPTIONS: run a verb in OUT/NAME, or continue the run that is there.
step() {
    run=$OUT/$1
    verb=$2
    shift 2
    if [ -f "$run/config.yaml" ]; then
        brimful "$verb" --resume "$run"
    else
        brimful "$verb" --out "$run" "$@"
    fi
}
