"""What options are called in other tools, so that a wrong option names the one that is meant."""

from collections.abc import Collection

_NAMES = {
    "learning-rates optimizer.learning-rate logits.learning-rate": "lr learning_rate peak_lr max_lr base_lr",
    "batch rows-per-update": (
        "bs batch_size per_device_train_batch_size train_batch_size per_gpu_train_batch_size"
    ),
    "micro-batch-tokens rows-per-micro-batch": (
        "gradient_accumulation_steps accumulate_grad_batches grad_accum update_freq micro_batch_size mbs"
        " per_device_eval_batch_size eval_batch_size max_tokens_per_batch"
    ),
    "epochs logits.epochs trainer.steps": "epoch epochs num_train_epochs num_epochs max_epochs n_epochs",
    "trainer.steps epochs logits.epochs": "steps max_steps num_steps train_steps total_steps iterations",
    "trainer.hours": "max_time time_limit max_hours",
    "max-length packing.max-length": (
        "max_seq_length max_seq_len seq_length seq_len max_len maxlen block_size model_max_length"
        " max_position_embeddings context_length max_tokens"
    ),
    "out output": "output out output_dir out_dir outdir output_path output_file save_dir save_path dest",
    "encoder start-from teacher model ENCODERS RUN": (
        "model_name_or_path model_name model_path model encoder checkpoint ckpt pretrained pretrained_model"
        " init_checkpoint backbone"
    ),
    "teacher": "teacher_model teacher_name_or_path",
    "student": "student_model student_name_or_path",
    "model.layers student-layers layers": "num_layers n_layers num_hidden_layers depth",
    "model.hidden-size student-hidden": "hidden_dim d_model hidden_size n_embd width dim",
    "model.heads": "num_attention_heads n_heads num_heads",
    "dropout model.dropout": "dropout_rate hidden_dropout_prob",
    "schedule.warmup": "warmup_ratio warmup_steps warmup_proportion num_warmup_steps",
    "schedule.shape": "lr_scheduler_type lr_scheduler scheduler lr_schedule",
    "optimizer.weight-decay": "weight_decay wd l2",
    "optimizer.name": "optim optimizer",
    "optimizer.beta1": "adam_beta1",
    "optimizer.beta2": "adam_beta2",
    "optimizer.epsilon": "adam_epsilon eps",
    "optimizer.layer-decay": "layerwise_lr_decay llrd lr_decay",
    "optimizer.ema": "ema_decay",
    "trainer.clip": "max_grad_norm gradient_clip_val clip_grad clip_norm grad_clip gradient_clipping",
    "trainer.log-every": "logging_steps log_interval log_steps",
    "trainer.evaluate-every": "eval_steps eval_strategy evaluation_strategy eval_interval val_check_interval",
    "trainer.checkpoint-every": "save_steps save_strategy save_interval checkpoint_interval",
    "trainer.keep-checkpoints": "save_total_limit",
    "trainer.patience": "early_stopping early_stopping_patience",
    "trainer.keep": "load_best_model_at_end",
    "trainer.recompute": "gradient_checkpointing activation_checkpointing checkpoint_activations",
    "trainer.compile": "torch_compile",
    "trainer.wandb": "report_to wandb_project",
    "precision": "fp16 bf16 fp32 mixed_precision amp half dtype torch_dtype",
    "seed seeds": "seed seeds random_seed random_state",
    "resume": "resume_from_checkpoint restore continue",
    "train data PATHS": "train_file train_data training_data train_path train_data_file train_dataset",
    "dev": "validation_file eval_file dev_file val valid validation eval eval_data eval_dataset",
    "test": "test_file test_data test_dataset",
    "data train PATHS DIRECTORY": "dataset dataset_name data_dir data_path corpus data",
    "input PATHS texts FILES": "input inputs input_file input_path input_dir texts files",
    "task": "task_name problem_type",
    "metric": "metric_for_best_model",
    "columns.text read.field": "text_column text_column_name text_field sentence1_key",
    "columns.label": "label_column label_column_name label_field",
    "masking.rate": "mlm_probability mask_prob masking_prob mask_ratio masked_lm_prob mask_rate",
    "masking.unit": "whole_word_mask whole_word_masking wwm",
    "tokenizer": "vocab_size vocabulary_size vocab vocab_file tokenizer_name tokenizer_path",
    "lowercase": "do_lower_case uncased lower lower_case",
    "language": "lang",
    "workers trainer.prefetch": (
        "num_proc num_workers n_jobs threads preprocessing_num_workers dataloader_num_workers jobs processes"
    ),
    "format": "export_format file_format",
}
"""The options that are meant, of which a verb may have the first or a later one, and their other names."""

MEANT = {word: options.split() for options, words in _NAMES.items() for word in words.split()}
"""The options that each other name may mean, the likeliest first; a positional option in capitals."""


def meant_by(flag: str, options: Collection[str]) -> str | None:
    """The option that a flag means, if it is one of another tool; `--optimizer.lr` means what `--lr` means.

    Args:
        options: the flags of the verb, and its positional options.
    """
    names = MEANT.get(flag.rpartition(".")[2].strip("-").replace("-", "_").lower(), [])
    flags = [name if name.isupper() else f"--{name}" for name in names]
    return next((name for name in flags if name in options), None)
