"""Write a TensorFlow checkpoint of the tensors in an .npz, in an environment with TensorFlow.

python write_tensorflow_checkpoint.py TENSORS.npz FOLDER/bert_model.ckpt

In the .npz, `|` stands for the `/` of names.
"""

import sys

import numpy as np
import tensorflow

v1 = tensorflow.compat.v1
v1.disable_eager_execution()
for name, values in np.load(sys.argv[1]).items():
    v1.get_variable(name.replace("|", "/"), initializer=values)
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    v1.train.Saver().save(session, sys.argv[2], write_meta_graph=False)
