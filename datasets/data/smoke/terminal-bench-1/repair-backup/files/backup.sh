#!/bin/sh
# backup.sh SOURCE DEST: copies the notes (*.txt) of SOURCE into DEST.
source=$1
dest=$2

cd $source
mkdir $dest
copied=1
for note in $(ls *.txt); do
    cp $note $dest/$note
    copied=$((copied + 1))
done
echo "copied $copied"
