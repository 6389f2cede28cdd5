// What the program's two sources share.
int doubled(int number);
